package cache

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Controls are what a request asks of the cache, by its cache-control header or LiteLLM's body field. The zero value
// asks for nothing.
type Controls struct {
	NoCache bool // do not serve from the cache
	NoStore bool // do not keep the answer
	// MaxAge is the age up to which an answer is taken; nil: any that is fresh.
	MaxAge *time.Duration
}

// ParseControls reads the values of the request's cache-control headers (RFC 9111, section 5.2.1). Directives that say
// nothing to this cache are passed over; a max-age that cannot be read counts as 0, as the RFC wants it.
func ParseControls(values []string) Controls {
	var c Controls
	for _, value := range values {
		for directive := range strings.SplitSeq(value, ",") {
			name, argument, _ := strings.Cut(directive, "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "no-cache":
				c.NoCache = true
			case "no-store":
				c.NoStore = true
			case "max-age":
				c = c.Join(Controls{MaxAge: seconds(argument)})
			}
		}
	}
	return c
}

// seconds reads a delta-seconds, quoted or not. One that is too large for a Duration is the largest.
func seconds(s string) *time.Duration {
	s = strings.Trim(strings.TrimSpace(s), `"`)
	var d time.Duration
	if n, err := strconv.ParseUint(s, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		d = math.MaxInt64
		if n <= uint64(math.MaxInt64/time.Second) {
			d = time.Duration(n) * time.Second
		}
	}
	return &d
}

// Join asks for whatever either asks for; of two ages the smaller counts.
func (c Controls) Join(other Controls) Controls {
	c.NoCache = c.NoCache || other.NoCache
	c.NoStore = c.NoStore || other.NoStore
	if other.MaxAge != nil && (c.MaxAge == nil || *other.MaxAge < *c.MaxAge) {
		c.MaxAge = other.MaxAge
	}
	return c
}

// Accepts reports whether an entry may be served at the instant now: fresh by the rule's lifetime, which may have
// become shorter since the entry was stored, and young enough for the request.
func (c Controls) Accepts(e Entry, ttl time.Duration, now time.Time) bool {
	age := now.Sub(e.Stored)
	if c.NoCache || age >= ttl || age < -clockSkew {
		return false
	}
	return c.MaxAge == nil || age <= *c.MaxAge
}

// clockSkew is how far another replica's clock may be ahead.
const clockSkew = 5 * time.Second
