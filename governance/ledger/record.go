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
	AdmittedAt time.Time `json:"admitted_at,omitzero"`
	EndedAt    time.Time `json:"ended_at"`

	Key     string   `json:"key"`
	Team    string   `json:"team,omitzero"`
	Org     string   `json:"org,omitzero"`
	User    string   `json:"user,omitzero"`
	EndUser string   `json:"end_user,omitzero"`
	Tags    []string `json:"tags,omitzero"`

	Endpoint   string `json:"endpoint,omitzero"`
	Stream     bool   `json:"stream,omitzero"`
	ModelAsked string `json:"model_asked,omitzero"`
	Model      string `json:"model,omitzero"`
	Deployment string `json:"deployment,omitzero"`
	Provider   string `json:"provider,omitzero"`
	Upstream   string `json:"upstream_model,omitzero"` // the name the upstream was asked for

	Outcome   Outcome `json:"outcome"`
	Status    int     `json:"status,omitzero"`    // of the answer; 0 when there was none
	Estimated bool    `json:"estimated,omitzero"` // the usage was not reported
	WouldFail string  `json:"would_refuse,omitzero"`

	Input         int64 `json:"input_tokens"`
	CacheRead     int64 `json:"cache_read_tokens,omitzero"`
	CacheWrite    int64 `json:"cache_write_tokens,omitzero"`
	CacheWrite1h  int64 `json:"cache_write_1h_tokens,omitzero"`
	CacheWrite12h int64 `json:"cache_write_12h_tokens,omitzero"`
	Output        int64 `json:"output_tokens"`
	Reasoning     int64 `json:"reasoning_tokens,omitzero"`

	Price    string `json:"price,omitzero"` // the row that priced it
	ListNano int64  `json:"list_nano"`
	CostNano int64  `json:"cost_nano"` // what the counters were charged
	Reserved int64  `json:"reserved_nano,omitzero"`

	DurationMs  int64 `json:"duration_ms,omitzero"`
	FirstByteMs int64 `json:"first_byte_ms,omitzero"`
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
