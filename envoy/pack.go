package envoy

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// packer wraps messages in Any and keeps the first error, so that a resource reads as one literal. Call err at the
// end.
type packer struct {
	first error
}

// pack marshals deterministically: the bytes inside an Any are part of the hash that versions a resource.
func (p *packer) pack(m proto.Message) *anypb.Any {
	out := new(anypb.Any)
	if err := anypb.MarshalFrom(out, m, proto.MarshalOptions{Deterministic: true}); err != nil && p.first == nil {
		p.first = err
	}
	return out
}

func (p *packer) err() error {
	return p.first
}

func duration(d time.Duration) *durationpb.Duration {
	return durationpb.New(d)
}

func uint32Value(n uint32) *wrapperspb.UInt32Value {
	return wrapperspb.UInt32(n)
}

func yes() *wrapperspb.BoolValue {
	return wrapperspb.Bool(true)
}
