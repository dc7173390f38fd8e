package redistest

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

const (
	// fillerKeys is how many keys make a snapshot that takes long to load, and fillerDelay what each costs then, in
	// microseconds: a minute in all, should nobody end it.
	fillerKeys  = 3000
	fillerDelay = 20_000
	// fillerBytes is the size of each value. The server looks at its clients once in so many bytes of a snapshot, the least
	// that can be set.
	fillerBytes = 1024
	// fillerDB is the database that they are in while the server loads, where no test looks.
	fillerDB = 15
)

// RestartLoading restarts the server as one with a large snapshot: it has kept all data, listens, and answers LOADING to
// almost everything until finish is called, which returns when it is up. A later restart is an ordinary one. The server
// must not keep an append-only file, and must not be a node of a cluster.
func (s *Server) RestartLoading() (finish func()) {
	s.t.Helper()
	s.refuseAppendOnly()
	s.fill()
	s.Kill()
	args := append(slices.Clone(s.argv), "--key-load-delay", strconv.Itoa(fillerDelay),
		"--loading-process-events-interval-bytes", strconv.Itoa(fillerBytes))
	if err := s.run(args); err != nil {
		s.t.Fatalf("restart a server that loads: %v", err)
	}
	settle(s.t, func() error {
		err := s.client.Ping(s.t.Context()).Err()
		switch {
		case err == nil:
			return fmt.Errorf("it answers PING\n%s", s.log)
		case redis.HasErrorPrefix(err, "LOADING"):
			return nil
		}
		return fmt.Errorf("%w\n%s", err, s.log)
	})
	return s.finishLoading
}

// fill saves a snapshot of the data and many keys besides.
func (s *Server) fill() {
	s.t.Helper()
	pipe := s.client.Pipeline()
	pipe.Select(s.t.Context(), fillerDB)
	for i := range fillerKeys {
		value := make([]byte, fillerBytes) // random: a snapshot is compressed
		_, _ = rand.Read(value)            // never fails
		pipe.Set(s.t.Context(), strconv.Itoa(i), value, 0)
	}
	pipe.Save(s.t.Context())
	pipe.Select(s.t.Context(), 0)
	if _, err := pipe.Exec(s.t.Context()); err != nil {
		s.t.Fatalf("save a large snapshot: %v", err)
	}
}

// finishLoading loads what is left at once and removes what only took time.
func (s *Server) finishLoading() {
	s.t.Helper()
	if err := s.client.ConfigSet(s.t.Context(), "key-load-delay", "0").Err(); err != nil {
		s.t.Fatalf("end the loading: %v", err)
	}
	if err := s.waitReady(); err != nil {
		s.t.Fatalf("a server that loaded: %v\n%s", err, s.log)
	}
	pipe := s.client.Pipeline()
	pipe.Select(s.t.Context(), fillerDB)
	pipe.FlushDB(s.t.Context())
	pipe.Select(s.t.Context(), 0)
	if _, err := pipe.Exec(s.t.Context()); err != nil {
		s.t.Fatalf("empty database %d: %v", fillerDB, err)
	}
	// The next start is an ordinary one again.
	if err := os.Remove(filepath.Join(s.dir, "dump.rdb")); err != nil {
		s.t.Fatal(err)
	}
}

// refuseAppendOnly fails the test where a snapshot would not be loaded.
func (s *Server) refuseAppendOnly() {
	s.t.Helper()
	got, err := s.client.ConfigGet(s.t.Context(), "appendonly").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	if got["appendonly"] != "no" {
		s.t.Fatal("RestartLoading: the server keeps an append-only file, which it would load instead of a snapshot")
	}
}
