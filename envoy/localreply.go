package envoy

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// upstreamFlags are the response flags of Envoy's own answers about an upstream: not found, unreachable, reset, timed
// out. An immediate response of the filter has none of them, so its body is left as it is.
var upstreamFlags = []string{"NC", "NR", "NFCF", "UH", "UF", "UO", "UC", "UR", "UT", "URX", "SI", "UMSDR", "LR", "UPE", "DF"}

// processorFailed holds for Envoy's answer in place of a filter that failed or cannot be reached. The prefix is that of
// Envoy's response code details, e.g. "ext_proc_error_gRPC_error_14{...}".
const processorFailed = `response.code_details.startsWith("ext_proc_error")`

// localReplies give Envoy's own answers, plain text or nothing by default, a JSON body that OpenAI's and Anthropic's
// SDKs both read an error from.
func localReplies(p *packer) *hcmv3.LocalReplyConfig {
	return &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{
		{
			Filter: &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
				ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: upstreamFlags},
			}},
			BodyFormatOverride: errorFormat("upstream_unavailable", "the upstream of this request failed: %LOCAL_REPLY_BODY%"),
		},
		{
			Filter: &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
				ExtensionFilter: &accesslogv3.ExtensionFilter{
					Name: "envoy.access_loggers.extension_filters.cel",
					ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{
						TypedConfig: p.pack(&celv3.ExpressionFilter{Expression: processorFailed}),
					},
				},
			}},
			BodyFormatOverride: errorFormat("gateway_unavailable", "the gateway's policy service does not answer"),
		},
	}}
}

// errorFormat is {"type":"error","error":{...}}: Anthropic's envelope, and OpenAI's with one member more.
func errorFormat(code, message string) *corev3.SubstitutionFormatString {
	text := structpb.NewStringValue
	return &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_JsonFormat{
		JsonFormat: &structpb.Struct{Fields: map[string]*structpb.Value{
			"type": text("error"),
			"error": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				"type":    text("server_error"),
				"code":    text(code),
				"message": text(message),
			}}),
		}},
	}}
}
