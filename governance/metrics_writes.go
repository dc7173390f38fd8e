package governance

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// writes are the metrics of the deferred queue and its journal.
type writes struct{ queue *pipeline.Deferred }

// writeMetric is one figure of the queue.
type writeMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(*pipeline.DeferredStats) float64
}

var writeMetrics = func() []writeMetric {
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	metric := func(name, help string, kind prometheus.ValueType, read func(*pipeline.DeferredStats) float64) writeMetric {
		return writeMetric{prometheus.NewDesc("tollgate_"+name, help, nil, nil), kind, read}
	}
	return []writeMetric{
		metric("deferred_writes_pending", "Deferred commands that Redis has not answered.", gauge,
			func(s *pipeline.DeferredStats) float64 { return float64(s.Pending) }),
		metric("deferred_writes_lost_total", "Settlements and spend records given up: for want of room, or because they could not be sent.", counter,
			func(s *pipeline.DeferredStats) float64 { return float64(s.Lost) }),
		metric("deferred_writes_refused_total", "Deferred writes that Redis answered with an error for good.", counter,
			func(s *pipeline.DeferredStats) float64 { return float64(s.Refused) }),
		metric("deferred_writes_dropped_total", "Copies and renewals given up.", counter,
			func(s *pipeline.DeferredStats) float64 { return float64(s.Dropped) }),
		metric("journal_writes", "Deferred writes that are on disk because Redis has not answered them.", gauge,
			func(s *pipeline.DeferredStats) float64 { return float64(s.OnDisk) }),
		metric("journal_bytes", "Size of the journals that this process holds.", gauge,
			func(s *pipeline.DeferredStats) float64 { return float64(s.Journal.Held) }),
		metric("journal_errors_total", "Writes and fsyncs that the journal's disk refused, a full journal included.", counter,
			func(s *pipeline.DeferredStats) float64 { return float64(s.Journal.AppendErrors + s.Journal.SyncErrors) }),
		metric("journal_replayed_total", "Deferred writes replayed from journals of earlier processes.", counter,
			func(s *pipeline.DeferredStats) float64 { return float64(s.Journal.Replayed) }),
		metric("journal_expired_total", "Deferred writes in journals too old to be replayed safely.", counter,
			func(s *pipeline.DeferredStats) float64 { return float64(s.Journal.Expired) }),
		metric("journal_damaged_bytes_total", "Bytes of journals that could not be read.", counter,
			func(s *pipeline.DeferredStats) float64 { return float64(s.Journal.DamagedBytes + s.Journal.TornBytes) }),
	}
}()

// Describe implements prometheus.Collector.
func (w writes) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range writeMetrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (w writes) Collect(ch chan<- prometheus.Metric) {
	s := w.queue.Stats()
	for _, m := range writeMetrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.read(&s))
	}
}
