package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// roles are what this test binary does when a test runs it as another process. Each reports on its standard output, a
// line at a time, and ends when that is closed.
var roles = map[string]func(dir string) error{
	"append":    appendRole,
	"reset":     resetRole,
	"remove":    removeRole,
	"hold":      holdRole,
	"adopt":     adoptRole,
	"mount":     mountRole,
	"full":      fullRole,
	"limited":   limitedRole,
	"forbidden": forbiddenRole,
}

const roleVariable, dirVariable = "JOURNAL_TEST_ROLE", "JOURNAL_TEST_DIR"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := roles[role](os.Getenv(dirVariable)); err != nil {
		fmt.Fprintln(os.Stderr, role, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child is another process.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
	log   strings.Builder
	ended bool
}

func start(t *testing.T, role, dir string, change ...func(*exec.Cmd)) *child {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(binary)}
	c.cmd.Env = append(os.Environ(), roleVariable+"="+role, dirVariable+"="+dir)
	c.cmd.Stderr = &c.log
	for _, f := range change {
		f(c.cmd)
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	return c
}

// line is the next complete line, "" when the process has ended.
func (c *child) line() string {
	s, err := c.out.ReadString('\n')
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(s, "\n")
}

// wait fails the test unless the process ends by itself, without an error.
func (c *child) wait() {
	c.t.Helper()
	c.ended = true
	if err := c.cmd.Wait(); err != nil {
		c.t.Fatalf("%v: %s", err, &c.log)
	}
}

// kill is kill -9.
func (c *child) kill() {
	if c.ended {
		return
	}
	c.ended = true
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// killSoon kills the process a little after its first line, and returns all it said.
func (c *child) killSoon(most time.Duration) []string {
	c.t.Helper()
	said := []string{c.line()}
	if said[0] == "" {
		_ = c.cmd.Wait()
		c.ended = true
		c.t.Fatalf("it ended at once: %s", &c.log)
	}
	timer := time.AfterFunc(rand.N(most), func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	for s := c.line(); s != ""; s = c.line() {
		said = append(said, s)
	}
	_ = c.cmd.Wait()
	c.ended = true
	if c.log.Len() > 0 {
		c.t.Fatalf("it failed: %s", &c.log)
	}
	return said
}

// latest is the number of the last line that begins with a word, 0 without one.
func latest(t *testing.T, lines []string, word string) int64 {
	t.Helper()
	var n int64
	for _, s := range lines {
		if rest, ok := strings.CutPrefix(s, word+" "); ok {
			if _, err := fmt.Sscan(rest, &n); err != nil {
				t.Fatalf("%q: %v", s, err)
			}
		}
	}
	return n
}

func say(what string, n int64) error {
	_, err := fmt.Fprintln(os.Stdout, what, n)
	return err
}

func openRole(dir string) (*Journal, error) { return Open(Options{Dir: dir, Now: clock}) }

// appendRole appends batches of all sizes and syncs now and then.
func appendRole(dir string) error {
	j, err := openRole(dir)
	if err != nil {
		return err
	}
	for last := int64(0); ; {
		n := last + 1 + rand.Int64N(4)
		if rand.IntN(4) == 0 {
			n = last + 500 // many pages: a write that can be torn
		}
		if err := errors.Join(j.Append(samples(last+1, n)), say("appended", n)); err != nil {
			return err
		}
		if last = n; rand.IntN(3) == 0 {
			if err := errors.Join(j.Sync(), say("synced", n)); err != nil {
				return err
			}
		}
	}
}

// collect reads all leftovers of a folder.
func collect(t *testing.T, j *Journal) []Entry {
	t.Helper()
	var got []Entry
	for _, l := range j.Leftovers() {
		got = append(got, readLeftover(t, l, 100)...)
	}
	return got
}

// removeAll removes what was read, and the journal, which must leave nothing.
func removeAll(t *testing.T, j *Journal, dir string) {
	t.Helper()
	for _, l := range j.Leftovers() {
		if err := l.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "files in the end", journals(t, dir), []string(nil))
}

// After kill -9 every entry that was appended is there, synced or not, in order, and nothing else.
func TestKilledWhileAppending(t *testing.T) {
	t.Parallel()
	var synced, torn int64
	for range 40 {
		dir := t.TempDir()
		said := start(t, "append", dir).killSoon(20 * time.Millisecond)
		synced += latest(t, said, "synced")
		j := open(t, dir)
		same(t, "leftovers", len(j.Leftovers()), 1)
		got := collect(t, j)
		if sure := max(latest(t, said, "appended"), latest(t, said, "synced")); int64(len(got)) < sure {
			t.Fatalf("%d entries of %d", len(got), sure)
		}
		same(t, "entries", got, samples(1, int64(len(got))))
		same(t, "damaged", j.Stats().DamagedBytes, int64(0))
		torn += j.Stats().TornBytes
		appendAll(t, j, samples(1, 3)...) // the folder can be used
		back, _ := readBack(t, j, Mark{}, 2)
		same(t, "own entries", back, samples(1, 3))
		if err := j.Reset(); err != nil {
			t.Fatal(err)
		}
		removeAll(t, j, dir)
	}
	if synced == 0 {
		t.Error("no process came as far as a Sync")
	}
	t.Logf("synced %d, torn bytes %d", synced, torn)
}

// resetRole appends and resets in turn.
func resetRole(dir string) error {
	j, err := openRole(dir)
	if err != nil {
		return err
	}
	for last := int64(0); ; {
		n := last + 1 + rand.Int64N(100)
		if err := errors.Join(j.Append(samples(last+1, n)), say("appended", n)); err != nil {
			return err
		}
		if last = n; rand.IntN(2) == 0 {
			if err := errors.Join(say("resetting", n), j.Reset(), say("reset", n)); err != nil {
				return err
			}
		}
	}
}

// A Reset that was cut short has dropped what it was for, or nothing; never more.
func TestKilledWhileResetting(t *testing.T) {
	t.Parallel()
	var resets int64
	for range 40 {
		dir := t.TempDir()
		said := start(t, "reset", dir).killSoon(10 * time.Millisecond)
		appended, begun, done := latest(t, said, "appended"), latest(t, said, "resetting"), latest(t, said, "reset")
		resets += done
		j := open(t, dir)
		got := collect(t, j)
		first, last := begun+1, begun
		if len(got) > 0 {
			first, last = got[0].Seq, got[len(got)-1].Seq
		}
		same(t, "entries", got, samples(first, last))
		switch {
		case appended > begun && (last < appended || first > begun+1):
			t.Fatalf("appended %d, reset %d: there are %d to %d", appended, begun, first, last)
		case first <= done:
			t.Fatalf("reset %d: entry %d is there", done, first)
		}
		same(t, "damaged", j.Stats().DamagedBytes, int64(0))
		removeAll(t, j, dir)
	}
	if resets == 0 {
		t.Error("no process came as far as a Reset")
	}
}

// removeRole removes all leftovers.
func removeRole(dir string) error {
	j, err := openRole(dir)
	if err != nil {
		return err
	}
	for i, l := range j.Leftovers() {
		for err = error(nil); err == nil; {
			_, err = l.Next(10)
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		if err := errors.Join(say("removing", int64(i+1)), l.Remove(), say("removed", int64(i+1))); err != nil {
			return err
		}
	}
	return j.Close()
}

// A Remove that was cut short has removed the file, or not; it is never there in part, and a damaged one never gone.
func TestKilledWhileRemoving(t *testing.T) {
	t.Parallel()
	const files = 30
	b := build(samples(1, 9))
	for _, rec := range b.records {
		if rec.entry == 4 {
			b.data[rec.to-1] ^= 1
		}
	}
	for range 15 {
		dir := t.TempDir()
		for i := range int64(files) {
			data := b.data // every third is damaged
			if i%3 != 0 {
				data = build(samples(i*10, i*10+9)).data
			}
			h, _ := decodeHeader(data)
			h.born = i // decides which is first
			path := filepath.Join(dir, fmt.Sprintf("%02d.journal", files-i))
			if err := os.WriteFile(path, append(h.encode(), data[headerSize:]...), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		said := start(t, "remove", dir).killSoon(5 * time.Millisecond)
		begun, done := latest(t, said, "removing"), latest(t, said, "removed")
		j := open(t, dir)
		left := int64(len(j.Leftovers()))
		if left < files-begun || left > files-done {
			t.Fatalf("removed %d, begun %d of %d: %d are there", done, begun, files, left)
		}
		var want []Entry
		for i := files - left; i < files; i++ {
			if i%3 != 0 {
				want = append(want, samples(i*10, i*10+9)...)
			} else {
				want = append(append(want, samples(1, 4)...), samples(6, 9)...)
			}
		}
		same(t, "entries", collect(t, j), want)
		for _, l := range j.Leftovers() {
			if err := l.Remove(); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		names := journals(t, dir)
		same(t, "files kept", len(names), files/3)
		for _, n := range names {
			if !strings.HasSuffix(n, ".journal.damaged") {
				t.Errorf("%s is there", n)
			}
		}
	}
}

// holdRole appends ten entries and lives until its standard input ends.
func holdRole(dir string) error {
	j, err := openRole(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(j.Append(samples(1, 10)), say("ready", int64(len(j.Leftovers())))); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, j.Close())
}

// Processes share a folder: what belongs to a living one is not touched, what a dead one left is adopted by one of them.
func TestSharedFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second := start(t, "hold", dir), start(t, "hold", dir)
	same(t, "first", first.line(), "ready 0")
	same(t, "second", second.line(), "ready 0")
	j := open(t, dir)
	same(t, "leftovers of living processes", len(j.Leftovers()), 0)
	first.kill()
	third := start(t, "hold", dir)
	same(t, "third", third.line(), "ready 1")
	j2 := open(t, dir)
	same(t, "leftovers that another process has", len(j2.Leftovers()), 0)
	for _, c := range []*child{second, third} {
		if err := c.stdin.Close(); err != nil {
			t.Fatal(err)
		}
		c.wait()
	}
	last := open(t, dir)
	same(t, "leftovers in the end", len(last.Leftovers()), 3)
	same(t, "entries", len(collect(t, last)), 30)
}

// adoptRole waits for a line, opens, and says how many files it has.
func adoptRole(dir string) error {
	if err := say("ready", 0); err != nil {
		return err
	}
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	j, err := openRole(dir)
	if err != nil {
		return err
	}
	if err := say("adopted", int64(len(j.Leftovers()))); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, j.Close())
}

// Each file is adopted once, however many processes start at the same moment.
func TestAdoptedOnce(t *testing.T) {
	t.Parallel()
	const files, processes = 40, 4
	dir := t.TempDir()
	for i := range files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i, suffix)), build(samples(1, 2)).data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var list []*child
	for range processes {
		c := start(t, "adopt", dir)
		same(t, "ready", c.line(), "ready 0")
		list = append(list, c)
	}
	for _, c := range list {
		if _, err := io.WriteString(c.stdin, "go\n"); err != nil {
			t.Fatal(err)
		}
	}
	var adopted int64
	for _, c := range list {
		adopted += latest(t, []string{c.line()}, "adopted")
	}
	same(t, "adopted", adopted, int64(files))
	for _, c := range list {
		if err := c.stdin.Close(); err != nil {
			t.Fatal(err)
		}
		c.wait()
	}
	same(t, "files in the end", len(journals(t, dir)), files)
}

// fillUp appends until it fails, makes room, and appends again; all that was appended must be there.
func fillUp(dir string, want error, makeRoom func() error) error {
	j, err := openRole(dir)
	if err != nil {
		return err
	}
	last := int64(0)
	for err == nil && last < 10_000 {
		if err = j.Append(samples(last+1, last+7)); err == nil {
			last += 7
		}
	}
	if !errors.Is(err, want) || last == 0 || j.Stats().AppendErrors != 1 {
		return fmt.Errorf("appended %d, %d errors counted, then: %w", last, j.Stats().AppendErrors, err)
	}
	if err := errors.Join(makeRoom(), j.Append(samples(last+1, last+7)), j.Sync()); err != nil {
		return err
	}
	var got []Entry
	for mark := (Mark{}); err == nil || len(got) == 0; {
		var list []Entry
		list, mark, err = j.ReadFrom(mark, 50)
		got = append(got, list...)
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return errors.Join(say("entries", int64(len(got))), say("appended", last+7), j.Close())
}

func checkFilledUp(t *testing.T, c *child) []string {
	t.Helper()
	entries, appended := c.line(), c.line()
	rest := c.line()
	c.wait()
	same(t, "entries read back", strings.TrimPrefix(entries, "entries "), strings.TrimPrefix(appended, "appended "))
	return []string{appended, rest}
}

// limitedRole runs into the limit of a file's size, which cuts a write short as a full disk does.
func limitedRole(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	limit := old
	limit.Cur = 50_001
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	return fillUp(dir, syscall.EFBIG, func() error { return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old) })
}

func TestFileSizeLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	said := checkFilledUp(t, start(t, "limited", dir))
	j := open(t, dir)
	got := collect(t, j)
	same(t, "replayed", got, samples(1, latest(t, said, "appended")))
	same(t, "lost", j.Stats().DamagedBytes+j.Stats().TornBytes, int64(0))
}

// forbiddenRole opens a folder in which it may not write.
func forbiddenRole(dir string) error {
	if os.Getuid() == 0 { // whom no mode stops
		const nobody = 65534
		if err := syscall.Setuid(nobody); err != nil {
			return err
		}
	}
	j, err := openRole(dir)
	if err == nil {
		return errors.Join(errors.New("it was opened"), j.Close())
	}
	if !errors.Is(err, os.ErrPermission) {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, err)
	return err
}

func TestForbiddenFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // so that the folder itself is what forbids
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, mode := range []os.FileMode{0o500, 0o300, 0} {
		sub := filepath.Join(dir, fmt.Sprintf("%o", mode))
		if err := os.Mkdir(sub, mode); err != nil {
			t.Fatal(err)
		}
		c := start(t, "forbidden", sub)
		said := c.line()
		c.wait()
		if !strings.HasPrefix(said, "journal folder "+sub+": ") {
			t.Errorf("mode %o: %s", mode, said)
		}
	}
}
