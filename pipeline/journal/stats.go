package journal

import "sync/atomic"

// Stats are counters since Open, for metrics, and Held, which is as of now.
type Stats struct {
	// Entries and Bytes were appended.
	Entries, Bytes int64
	// AppendErrors are Appends that wrote nothing; ErrFull is one of them.
	AppendErrors int64
	// SyncErrors are failed fsyncs, and failed attempts to make good for one by writing again. Rewritten are the entries
	// that went into a new file.
	SyncErrors, Rewritten int64
	// Replayed are entries of dead processes that Next returned.
	Replayed int64
	// DamagedBytes were not intact although intact entries follow, or should; TornBytes were dropped at the end of files
	// whose process or machine died while it wrote.
	DamagedBytes, TornBytes int64
	// Expired are entries that were skipped because they are older than Lifetime.
	Expired int64
	// Held is the bytes of the journals in the folder that this process holds: its own and those of dead processes.
	Held int64
}

type counters struct {
	entries, bytes, appendErrors, syncErrors, rewritten, replayed, damaged, torn, expired, held atomic.Int64
}

// Stats returns the counters. It is safe for concurrent use and waits for nothing.
func (j *Journal) Stats() Stats {
	c := &j.count
	return Stats{
		Entries: c.entries.Load(), Bytes: c.bytes.Load(), AppendErrors: c.appendErrors.Load(),
		SyncErrors: c.syncErrors.Load(), Rewritten: c.rewritten.Load(), Replayed: c.replayed.Load(),
		DamagedBytes: c.damaged.Load(), TornBytes: c.torn.Load(), Expired: c.expired.Load(), Held: c.held.Load(),
	}
}
