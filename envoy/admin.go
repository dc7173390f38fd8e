package envoy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
)

// adminClient talks to an Envoy's admin interface.
type adminClient struct {
	http *http.Client
	base string
}

// newAdminClient takes an address that adminOverride has accepted.
func newAdminClient(address string) adminClient {
	path, ok := strings.CutPrefix(address, "unix:")
	if !ok {
		return adminClient{http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, base: "http://" + address}
	}
	return adminClient{
		http: &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, // a connection left open would count as one at Envoy's end
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", path)
			},
		}},
		base: "http://envoy",
	}
}

func (c adminClient) do(ctx context.Context, method, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("envoy's admin interface: %s: %s: %.200s", path, response.Status, body)
	}
	return body, nil
}

// ready reports whether Envoy has its first configuration and its workers run.
func (c adminClient) ready(ctx context.Context) bool {
	_, err := c.do(ctx, http.MethodGet, "/ready")
	return err == nil
}

// listeners are the TCP addresses Envoy listens on.
func (c adminClient) listeners(ctx context.Context) ([]string, error) {
	body, err := c.do(ctx, http.MethodGet, "/listeners?format=json")
	if err != nil {
		return nil, err
	}
	var list adminv3.Listeners
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("envoy's listeners: %w", err)
	}
	var addresses []string
	for _, l := range list.ListenerStatuses {
		if socket := l.GetLocalAddress().GetSocketAddress(); socket != nil {
			addresses = append(addresses, net.JoinHostPort(socket.Address, strconv.Itoa(int(socket.GetPortValue()))))
		}
	}
	return addresses, nil
}

// activeRequests counts the requests under way on all listeners but the admin interface's own.
func (c adminClient) activeRequests(ctx context.Context) (int64, error) {
	body, err := c.do(ctx, http.MethodGet, "/stats?format=json&filter=^http\\.[^.]*\\.downstream_rq_active$")
	if err != nil {
		return 0, err
	}
	var list struct {
		Stats []struct {
			Name  string `json:"name"`
			Value int64  `json:"value"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return 0, fmt.Errorf("envoy's statistics: %w", err)
	}
	var active int64
	for _, s := range list.Stats {
		if s.Name != "http.admin.downstream_rq_active" {
			active += s.Value
		}
	}
	return active, nil
}

// adminOverride is the configuration that Envoy merges over its bootstrap to put the admin interface at an address.
func adminOverride(address string) (string, error) {
	interfaceAt, err := admin(address)
	if err != nil {
		return "", err
	}
	encoded, err := protojson.Marshal(&bootstrapv3.Bootstrap{Admin: interfaceAt})
	if err != nil {
		return "", fmt.Errorf("admin address: %w", err)
	}
	return string(encoded), nil
}
