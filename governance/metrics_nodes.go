package governance

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// nodes are the metrics of the servers in use. They are read when they are asked for: a server that went out of use has
// none any more.
type nodes []*pipeline.Backend

var (
	nodeUp = prometheus.NewDesc("tollgate_redis_node_up",
		"1 while a Redis server answers, 0 while requests do not wait for it.", []string{"node"}, nil)
	nodeLate = prometheus.NewDesc("tollgate_redis_node_late_trips",
		"Trips to a Redis server that are under way although their callers have gone on.", []string{"node"}, nil)
)

// Describe implements prometheus.Collector.
func (n nodes) Describe(ch chan<- *prometheus.Desc) {
	ch <- nodeUp
	ch <- nodeLate
}

// Collect implements prometheus.Collector. Of a server that two stores share the worse is told.
func (n nodes) Collect(ch chan<- prometheus.Metric) {
	seen := map[string]pipeline.NodeState{}
	for i, b := range n {
		if i > 0 && b == n[0] {
			continue
		}
		for _, s := range b.Nodes() {
			if other, ok := seen[s.Addr]; ok {
				s.Answering, s.Late = s.Answering && other.Answering, s.Late+other.Late
			}
			seen[s.Addr] = s
		}
	}
	for addr, s := range seen {
		up := 0.0
		if s.Answering {
			up = 1
		}
		ch <- prometheus.MustNewConstMetric(nodeUp, prometheus.GaugeValue, up, addr)
		ch <- prometheus.MustNewConstMetric(nodeLate, prometheus.GaugeValue, float64(s.Late), addr)
	}
}
