package usage

import (
	"math"
	"strconv"
	"time"
)

// CacheControl is what the client's body field "cache", LiteLLM's, asks of the response cache.
type CacheControl struct {
	NoCache   bool          // do not answer from the cache
	NoStore   bool          // do not keep the answer
	TTL       time.Duration // keep it that long; 0: not said, or NoStore
	MaxAge    time.Duration // serve only what is that young
	HasMaxAge bool          // MaxAge was said
}

// parseCacheControl reads the members LiteLLM defines; others are left alone. A lifetime of zero keeps nothing.
func parseCacheControl(value []byte) (CacheControl, error) {
	var c CacheControl
	var err error
	for name, v := range members(value) {
		if isNull(v) {
			continue
		}
		switch string(name) {
		case "no-cache":
			err = setBool("cache.no-cache", v, &c.NoCache)
		case "no-store":
			err = setBool("cache.no-store", v, &c.NoStore)
		case "ttl":
			if c.TTL, err = seconds("cache.ttl", v); c.TTL == 0 {
				c.NoStore = true
			}
		case "s-maxage", "s-max-age":
			c.HasMaxAge = true
			c.MaxAge, err = seconds("cache.s-maxage", v)
		}
		if err != nil {
			return CacheControl{}, err
		}
	}
	return c, nil
}

func setBool(param string, value []byte, to *bool) error {
	switch value[0] {
	case 't':
		*to = true
	case 'f':
	default:
		return malformed(param, "%s must be true or false", param)
	}
	return nil
}

// seconds reads a number of seconds, saturating where a Duration ends.
func seconds(param string, value []byte) (time.Duration, error) {
	if c := value[0]; c != '-' && (c < '0' || c > '9') {
		return 0, malformed(param, "%s must be a number of seconds", param)
	}
	// The text is a valid JSON number, so the only error is the range, and then s is an infinity.
	s, _ := strconv.ParseFloat(string(value), 64)
	switch {
	case s < 0:
		return 0, malformed(param, "%s must not be negative", param)
	case s >= math.MaxInt64/float64(time.Second):
		return math.MaxInt64, nil
	}
	return time.Duration(s * float64(time.Second)), nil
}
