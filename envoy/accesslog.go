package envoy

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// accessLogFields are the members of a line. PATH(NQ) is the path without its query string.
var accessLogFields = map[string]string{
	"time":             "%START_TIME%",
	"method":           "%REQ(:METHOD)%",
	"path":             "%PATH(NQ)%",
	"protocol":         "%PROTOCOL%",
	"status":           "%RESPONSE_CODE%",
	"details":          "%RESPONSE_CODE_DETAILS%",
	"flags":            "%RESPONSE_FLAGS%",
	"bytes_received":   "%BYTES_RECEIVED%",
	"bytes_sent":       "%BYTES_SENT%",
	"duration_ms":      "%DURATION%",
	"client":           "%DOWNSTREAM_REMOTE_ADDRESS%",
	"upstream_cluster": "%UPSTREAM_CLUSTER%",
	"upstream_host":    "%UPSTREAM_HOST%",
	"request_id":       "%REQ(X-REQUEST-ID)%",
	"tollgate_id":      "%RESP(X-TOLLGATE-REQUEST-ID)%",
}

// accessLog is no log for no path.
func accessLog(path string, p *packer) []*accesslogv3.AccessLog {
	if path == "" {
		return nil
	}
	format := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(accessLogFields))}
	for name, value := range accessLogFields {
		format.Fields[name] = structpb.NewStringValue(value)
	}
	return []*accesslogv3.AccessLog{{
		Name: "envoy.access_loggers.file",
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: p.pack(&filelogv3.FileAccessLog{
			Path: path,
			AccessLogFormat: &filelogv3.FileAccessLog_LogFormat{LogFormat: &corev3.SubstitutionFormatString{
				Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: format},
			}},
		})},
	}}
}
