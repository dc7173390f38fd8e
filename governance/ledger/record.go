package ledger

import (
	"time"

	"github.com/go-json-experiment/json"

	"github.com/tollgate-proxy/tollgate/governance/usage"
)

// Outcome is how an admitted request ended.
type Outcome string

// The outcomes (governance.md "What each ending charges").
const (
	Complete  Outcome = "complete"  // a whole answer
	CacheHit  Outcome = "cache_hit" // answered from the cache
	Partial   Outcome = "partial"   // the client left, or the stream broke, in mid-answer
	Abandoned Outcome = "abandoned" // the client left before the upstream answered
	Failed    Outcome = "failed"    // the upstream refused, failed or was not reached
	Lost      Outcome = "lost"      // the lease ran out: the process that held it died
)

// Record is one request in the books. Money is in nano-dollars.
type Record struct {
	ID         string    `json:"id"` // of the request: a UUIDv7
	AdmittedAt time.Time `json:"admitted_at"`
	EndedAt    time.Time `json:"ended_at"`

	Key     string   `json:"key"`
	Team    string   `json:"team,omitempty"`
	Org     string   `json:"org,omitempty"`
	User    string   `json:"user,omitempty"`
	EndUser string   `json:"end_user,omitempty"`
	Tags    []string `json:"tags,omitempty"`

	Endpoint   string `json:"endpoint,omitempty"`
	Stream     bool   `json:"stream,omitempty"`
	ModelAsked string `json:"model_asked,omitempty"`
	Model      string `json:"model,omitempty"`
	Deployment string `json:"deployment,omitempty"`
	Provider   string `json:"provider,omitempty"`
	Upstream   string `json:"upstream_model,omitempty"` // the name the upstream was asked for

	Outcome   Outcome `json:"outcome"`
	Status    int     `json:"status,omitempty"`    // of the answer; 0 when there was none
	Estimated bool    `json:"estimated,omitempty"` // the usage was not reported
	WouldFail string  `json:"would_refuse,omitempty"`

	Input         int64 `json:"input_tokens"`
	CacheRead     int64 `json:"cache_read_tokens,omitempty"`
	CacheWrite    int64 `json:"cache_write_tokens,omitempty"`
	CacheWrite1h  int64 `json:"cache_write_1h_tokens,omitempty"`
	CacheWrite12h int64 `json:"cache_write_12h_tokens,omitempty"`
	Output        int64 `json:"output_tokens"`
	Reasoning     int64 `json:"reasoning_tokens,omitempty"`

	Price    string `json:"price,omitempty"` // the row that priced it
	ListNano int64  `json:"list_nano"`
	CostNano int64  `json:"cost_nano"` // what the counters were charged
	Reserved int64  `json:"reserved_nano,omitempty"`

	DurationMs  int64 `json:"duration_ms,omitempty"`
	FirstByteMs int64 `json:"first_byte_ms,omitempty"`
}

// SetUsage fills in the token counts.
func (r *Record) SetUsage(u usage.Usage) {
	r.Input, r.CacheRead, r.Output, r.Reasoning = u.Input, u.CacheRead, u.Output, u.Reasoning
	r.CacheWrite, r.CacheWrite1h, r.CacheWrite12h = u.CacheWrite, u.CacheWrite1h, u.CacheWrite12h
}

// Encode is the record as it stands in the stream.
func (r *Record) Encode() ([]byte, error) { return json.Marshal(r) }

// Decode reads a record of the stream.
func Decode(b []byte) (Record, error) {
	var r Record
	err := json.Unmarshal(b, &r)
	return r, err
}
