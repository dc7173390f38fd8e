package envoy

import (
	"bytes"
	"fmt"
	"strings"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"
)

// note explains a value that is not Envoy's default, above the first line of the YAML that begins with start.
type note struct {
	start, text string
}

// notes apply wherever their line is in the file; each is printed once.
var notes = []note{
	{"overload_manager:", "Envoy has no limit of its own; each connection costs a file descriptor and buffers."},
	{"circuit_breakers:", "The default of 1,024 requests turns the 1,025th call in flight into an error; limits are tollgate's."},
	{"connection_keepalive:", "Finds a peer that vanished while its calls are silent."},
	{"max_concurrent_streams:", "The next call opens another connection to tollgate."},
	{"api_type:", "Only what has changed is sent."},
	{"early_header_mutation_extensions:", "No client chooses its own cluster."},
	{"status_on_error:", "failure_mode_allow stays false: without tollgate's answer no request passes. 503 is what SDKs retry."},
	{"message_timeout:", "The default is 200 ms."},
	{"request_body_mode:", "The whole body in one exchange with tollgate, of any size, and a refusal in the caller's own format."},
	{"response_body_mode:", "Each piece of an answer passes at once; tollgate reads along."},
	{"response_trailer_mode:", "An answer that ends in trailers has its end here."},
	{"allow_all_routing:", "tollgate sets the upstream's host and path."},
	{"disallow_is_error:", "A header edit that Envoy refuses must not let the request go half edited."},
	{"use_remote_address:", "x-forwarded-for and x-envoy-* of clients are not believed."},
	{"request_headers_timeout:", "A connection that sends no request does not stay."},
	{"stream_idle_timeout:", "Reasoning models are silent for many minutes; the default cuts them off after five."},
	{"cluster_header:", "tollgate names the cluster; a request without the header has no upstream."},
	{"timeout: 0s", "0: no limit to how long an answer streams; the default is 15 s."},
	{"idle_timeout: 3600s", "Of a call on which nothing moves in either direction."},
	{"local_reply_config:", "Envoy's own errors as JSON that SDKs can read."},
	{"match_typed_subject_alt_names:", "Envoy verifies no names by default."},
	{"flush_timeout:", "Of an answer that is complete and that the client no longer reads."},
	{"request_headers_to_remove:", "Who the client is and which way its request takes is no business of a provider's."},
	{"request_attributes:", "What tollgate is told beside headers and body."},
	{"suppress_envoy_headers:", "Envoy adds no x-envoy-* headers for the provider or the client."},
	{"initial_connection_window_size: 8388608", "What a client may send ahead of being read; the default of 24 MiB is memory without a key."},
	{"initial_connection_window_size: 67108864", "Bodies of many calls are under way from tollgate at once; the default is 24 MiB."},
	{"internal_address_config:", "Nobody is internal, whose x-envoy-* headers would be obeyed."},
	{"skip_xff_append:", "Nor does a provider learn the client's address."},
	{"preserve_external_request_id:", "The client's own id reaches the provider and comes back."},
	{"upgrade_configs:", "tollgate refuses or meters a WebSocket; without this Envoy refuses it in plain text."},
	{"per_connection_buffer_limit_bytes:", "The default, which bodies are not bounded by: they stream through."},
	{"dns_lookup_family: ALL", "A provider is one host whose addresses rotate, IPv6 and IPv4 raced."},
	{"idle_timeout: 50s", "An unused connection is closed here before the provider closes it under a request."},
	{"tcp_keepalive:", "NAT gateways forget a silent connection while the model thinks."},
}

const (
	staticHeader = `# Envoy for tollgate: listener, routes, one cluster per deployment, and the ext_proc filter.
# Make it anew when models, deployments or gateway.address change.
`
	dynamicHeader = `# Envoy for tollgate: all but the way to tollgate itself comes from tollgate's xDS server.
`
	commonHeader = `# It holds no credentials: tollgate puts them on each request. Without tollgate's answer no request passes.
# Comments mark what is not Envoy's default.
`
)

// annotatedYAML is b as YAML with a note above the first line of each field that has one.
func annotatedYAML(b *bootstrapv3.Bootstrap, header string) ([]byte, error) {
	encoded, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode bootstrap: %w", err)
	}
	plain, err := yaml.JSONToYAML(encoded)
	if err != nil {
		return nil, fmt.Errorf("encode bootstrap: %w", err)
	}
	out := bytes.NewBufferString(header)
	printed := make([]bool, len(notes))
	for line := range strings.Lines(string(plain)) {
		content := strings.TrimLeft(line, " ")
		indent := line[:len(line)-len(content)]
		for i, n := range notes {
			if !printed[i] && strings.HasPrefix(strings.TrimPrefix(content, "- "), n.start) {
				printed[i] = true
				fmt.Fprintf(out, "%s# %s\n", indent, n.text)
			}
		}
		out.WriteString(line)
	}
	return out.Bytes(), nil
}
