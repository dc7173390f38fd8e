package envoy

import (
	"time"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// FilterName is the ext_proc filter's name in the chain, and the key of its attributes and metadata.
const FilterName = "envoy.filters.http.ext_proc"

// messageTimeout is how long Envoy waits for a reply of the filter. The default of 200 ms turns a garbage collection
// under load into a 504. FULL_DUPLEX_STREAMED messages have no timeout: there the filter keeps a deadline of its own.
const messageTimeout = 10 * time.Second

// Filter is the ext_proc filter that asks the cluster ProcessorCluster. It fails closed: without an answer of the
// filter a request is refused with 503, never passed on. It allows no mode_override, because Envoy looks at none of a
// filter with a FULL_DUPLEX_STREAMED body.
func Filter() *extprocv3.ExternalProcessor {
	return &extprocv3.ExternalProcessor{
		GrpcService: &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
			EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: ProcessorCluster},
		}},
		StatPrefix:         "tollgate",
		FailureModeAllow:   false,
		StatusOnError:      &typev3.HttpStatus{Code: typev3.StatusCode_ServiceUnavailable},
		MessageTimeout:     duration(messageTimeout),
		ProcessingMode:     processingMode(),
		RequestAttributes:  []string{"source.address"},
		ResponseAttributes: []string{"xds.cluster_name", "upstream.address"},
		MutationRules: &mutationv3.HeaderMutationRules{
			// The filter sets the upstream's :authority and :path.
			AllowAllRouting: yes(),
			// A refused mutation may be the removal of the client's key: better no request than one half edited.
			DisallowIsError: yes(),
		},
	}
}

// processingMode is chosen by BenchmarkBodyModes. Envoy's CPU in microseconds a request, medians of three runs on two
// shared cores (compare the columns; 504, 1518 and 977 without bodies):
//
//	request + response            chat 2 KiB   image 1 MiB   200 events
//	BUFFERED + BUFFERED                  689          3718          986
//	BUFFERED + STREAMED                  581          3654         1076
//	STREAMED + STREAMED                  602          3394         1084
//	FULL_DUPLEX + STREAMED               531          4872         1158
//	FULL_DUPLEX + FULL_DUPLEX            613          5000         1031
//
// For chats they are equal within the noise; a large body costs FULL_DUPLEX a third more, as it travels back, and that
// buys what the others lack. BUFFERED needs two exchanges where it needs one, and answers a body above its buffer with a
// plain-text 413 of Envoy's. STREAMED, with its header reply held until the body is whole, starts message_timeout at
// the first byte, so an upload of more than ten seconds ends in an error, and hangs above the buffer. Both need buffers
// of max_body on every connection, which FULL_DUPLEX does not; a body that its upstream is slow to read is in Envoy's
// memory in all of them. A response is STREAMED: it passes at once in either mode, and need not be sent back.
func processingMode() *extprocv3.ProcessingMode {
	return &extprocv3.ProcessingMode{
		RequestHeaderMode:  extprocv3.ProcessingMode_SEND,
		ResponseHeaderMode: extprocv3.ProcessingMode_SEND,
		RequestBodyMode:    extprocv3.ProcessingMode_FULL_DUPLEX_STREAMED,
		ResponseBodyMode:   extprocv3.ProcessingMode_STREAMED,
		// Envoy demands it for FULL_DUPLEX_STREAMED.
		RequestTrailerMode: extprocv3.ProcessingMode_SEND,
		// An answer with trailers ends in them: without this the filter never sees its end and takes it for cut off.
		ResponseTrailerMode: extprocv3.ProcessingMode_SEND,
	}
}
