package envoy

import (
	"testing"
)

func TestParseVersion(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, out    string
		major, minor int
		ok           bool
	}{
		{"release", "\n/usr/bin/envoy  version: 9e5580933739775e8bce696a57a2e1bc99368f23/1.40.0/Clean/RELEASE/BoringSSL\n", 1, 40, true},
		{"development", "envoy  version: abc/1.41.0-dev/Modified/DEBUG/BoringSSL", 1, 41, true},
		{"another program", "nginx version: nginx/1.27.0", 0, 0, false},
		{"nothing", "", 0, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			major, minor, err := parseVersion(tt.out)
			if major != tt.major || minor != tt.minor || (err == nil) != tt.ok {
				t.Errorf("got %d.%d, error %v", major, minor, err)
			}
		})
	}
}

func FuzzParseVersion(f *testing.F) {
	f.Add("version: abc/1.40.0/Clean")
	f.Fuzz(func(t *testing.T, out string) {
		if major, minor, err := parseVersion(out); err == nil && (major < 0 || major > 9999 || minor < 0 || minor > 9999) {
			t.Errorf("%q is version %d.%d", out, major, minor)
		}
	})
}
