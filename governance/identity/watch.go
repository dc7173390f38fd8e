package identity

import "context"

// Watch hears of edits until ctx ends. While messages do not arrive everything in memory is stale, and all that was read
// before they arrive again is stale once more: they may have been missed.
func (m *Memory) Watch(ctx context.Context) {
	m.opt.Backend.Subscribe(ctx, channel(m.opt.Prefix), m.heard, func(up bool) {
		if up {
			raise(&m.all, m.Tick())
		}
		m.down.Store(!up)
		if ctx.Err() == nil {
			m.opt.Log.Info("identities: edits are heard of by message", "up", up)
		}
	})
}

// heard makes stale what a message says to have another revision than memory knows.
func (m *Memory) heard(payload string) {
	ref, revision, ok := parseMessage(payload)
	if !ok {
		m.opt.Log.Warn("identities: a message that cannot be read; everything is read again")
		raise(&m.all, m.Tick())
		return
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if ref.Kind != KindKey {
		m.parts.rows[ref].edited(m, revision)
		return
	}
	sum, err := parseSum(ref.ID)
	if err != nil {
		return // no key has such a hash
	}
	m.keys.rows[sum].edited(m, revision)
	m.unknown.rows[sum].edited(m, revision)
	if l := m.flights[sum]; l != nil {
		raise(&l.invalid, m.Tick())
	}
}

// edited makes an entry stale unless it is as new as a revision. It does nothing for none.
func (e *Entry) edited(m *Memory, revision int64) {
	if e == nil {
		return
	}
	if row := e.Row(); row == nil || row.Revision < revision {
		m.Outdated(e)
	}
}
