package envoy

import (
	"testing"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

func TestContentHashIsOfTheContent(t *testing.T) {
	t.Parallel()
	hash := func(names ...string) string {
		cfg := &config.Config{Gateway: config.Gateway{Address: "127.0.0.1:8080"}, Models: []config.Model{{Name: "m"}}}
		for _, name := range names {
			cfg.Models[0].Deployments = append(cfg.Models[0].Deployments, config.Deployment{Name: name, URL: "https://" + name + ".example"})
		}
		clusters, err := Clusters(cfg, Options{})
		if err != nil {
			t.Fatal(err)
		}
		version, err := contentHash(clusterResources(clusters))
		if err != nil {
			t.Fatal(err)
		}
		return version
	}
	if hash("a", "b") != hash("b", "a") {
		t.Error("the order of deployments in the file changes the version")
	}
	if hash("a", "b") == hash("a", "c") || hash("a") == hash("a", "b") || hash() == hash("a") {
		t.Error("different clusters have one version")
	}
}
