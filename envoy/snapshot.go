package envoy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	cachetypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/proto"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

// snapshot is all that an Envoy which asks gets. Each type's version is the hash of its resources, so that an
// unchanged configuration, also of another replica, is nothing new.
func snapshot(cfg *config.Config, o Options) (*cachev3.Snapshot, error) {
	l, err := Listener(cfg, o)
	if err != nil {
		return nil, err
	}
	routes, err := Routes(cfg)
	if err != nil {
		return nil, err
	}
	clusters, err := Clusters(cfg, o)
	if err != nil {
		return nil, err
	}
	s := new(cachev3.Snapshot)
	for kind, resources := range map[cachetypes.ResponseType][]cachetypes.Resource{
		cachetypes.Listener: {l},
		cachetypes.Route:    {routes},
		cachetypes.Cluster:  clusterResources(clusters),
	} {
		version, err := contentHash(resources)
		if err != nil {
			return nil, err
		}
		s.Resources[kind] = cachev3.NewResources(version, resources)
	}
	return s, s.Consistent()
}

func clusterResources(clusters []*clusterv3.Cluster) []cachetypes.Resource {
	resources := make([]cachetypes.Resource, len(clusters))
	for i, c := range clusters {
		resources[i] = c
	}
	return resources
}

// contentHash depends on the resources' order, which is that of their names.
func contentHash(resources []cachetypes.Resource) (string, error) {
	hash := sha256.New()
	for _, r := range resources {
		encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
		if err != nil {
			return "", fmt.Errorf("encode %s: %w", cachev3.GetResourceName(r), err)
		}
		fmt.Fprintf(hash, "%d:", len(encoded))
		hash.Write(encoded)
	}
	return hex.EncodeToString(hash.Sum(nil)[:12]), nil
}
