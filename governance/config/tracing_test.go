package config

import (
	"strings"
	"testing"
)

func TestTracing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want, explained string }{
		{"url", "tracing: {otlp: 'https://collector.example.com:4317'}\n", "https://collector.example.com:4317", "spans: by OTLP over gRPC to https://collector.example.com:4317, as the OTEL_* variables say\n"},
		{"variables", "tracing: {otlp: on}\n", TracingOn, "spans: by OTLP over gRPC to the endpoint that the OTEL_* variables name\n"},
		{"quoted", "tracing: {otlp: 'on'}\n", TracingOn, "spans: by OTLP over gRPC to the endpoint that the OTEL_* variables name\n"},
	} {
		c := mustLoadText(t, test.text, nil)
		if c.Tracing == nil || c.Tracing.OTLP != test.want || len(c.NotYet) != 0 {
			t.Errorf("%s: %+v, %v", test.name, c.Tracing, c.NotYet)
		}
		var text strings.Builder
		if err := c.Explain(&text); err != nil || !strings.Contains(text.String(), test.explained) {
			t.Errorf("%s: %v\n%s", test.name, err, &text)
		}
	}
	var text strings.Builder
	if err := mustLoadText(t, "", nil).Explain(&text); err != nil || strings.Contains(text.String(), "spans") {
		t.Errorf("off: %v\n%s", err, &text)
	}
}
