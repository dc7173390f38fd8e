// Package journal keeps deferred writes on disk until Redis has answered them, so that they outlive an outage of Redis
// and the end of the process.
//
// A [Journal] is one file of one process, `<name>.journal`, to which entries are appended. The process holds a lock on it
// while it lives, so several processes may share a folder, and [Open] adopts the files of dead ones only: each is a
// [Leftover], read in file order and removed once all of it was answered. An entry carries the writer id and the number
// under which its script is applied exactly once, so replaying one that was applied before does nothing, and so does
// reading one twice.
//
// # The file
//
// All numbers are little endian. A header of 52 bytes: "tgjournl", version (4 bytes), generation (4), when the process
// opened its journal (8, unix ms), the marker (8), marker and good end of the file that it continues (8, 8), CRC-32C of
// these (4). Then records, each of
//
//	marker (8)  checksum (4)  length of the payload (4)  payload
//
// The marker is random, one a file: after a damaged record the next one is found by it, and nobody who can choose what
// an argument holds can forge it. The checksum is CRC-32C, begun with a value made of the marker and of the record's
// place in the file: a record that stands anywhere else is not taken. The payload is a script (its name and source,
// once a file) or an entry, which names its script by digest: a newer version of the program, with other scripts, can
// replay it.
//
// # What may go wrong
//
//   - A torn end (kill -9, power loss): reading ends there and says how many bytes were dropped.
//   - A damaged record: counted; what is intact behind it is read; the file is kept as `.damaged` instead of removed.
//   - A write that fails or falls short: the file stays as it was.
//   - A failed fsync: what was appended since the last good one may be lost although it reads back, because the kernel
//     may have dropped it. It is kept in memory until then, and goes into a new file, `<name>.2.journal`, whose header
//     says up to where the old one counts.
//   - The folder is full, by [Options].Max or by the disk: Append says so; nothing was written.
//
// The package knows entries and files, no Redis. It imports the standard library only.
package journal
