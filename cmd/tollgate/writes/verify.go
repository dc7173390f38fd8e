package writes

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// chunk is how many keys one command names when all are looked at.
const chunk = 1000

// verify fails unless every user has the value that was written, once.
func (b *bench) verify(ctx context.Context) error {
	right, wrong, user := 0, "", 0
	for some := range slices.Chunk(b.keys, chunk) {
		got, err := b.direct.MGet(ctx, some...).Result()
		if err != nil {
			return fmt.Errorf("look what has arrived: %w", err)
		}
		for i, v := range got {
			want := strconv.FormatInt(value(user), 10)
			switch {
			case v == want:
				right++
			case wrong == "":
				wrong = fmt.Sprintf("%s is %v, not %s", some[i], v, want)
			}
			user++
		}
	}
	if right != b.Count {
		return fmt.Errorf("%d of %d values are there: %s", right, b.Count, wrong)
	}
	return nil
}

// remove deletes what was written, also when ctx has ended: the Redis may be one in use. It waits for what is on its way.
func (b *bench) remove(ctx context.Context) {
	b.proxy.WaitQuiet(max(20*time.Millisecond, 2*b.RTT))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for some := range slices.Chunk(b.keys, chunk) {
		if b.direct.Unlink(ctx, some...).Err() != nil {
			return // the Redis is gone
		}
	}
}
