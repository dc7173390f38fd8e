package identity

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

// The types below are the stored shapes of the configuration's: their names are the file's, amounts are integers
// (nano-dollars, tokens, requests), durations nanoseconds, instants RFC 3339. They stand apart from the configuration's
// types so that a field renamed there does not change what is stored.

type wireScope struct {
	Limits   *wireLimits    `json:"limits,omitzero"`
	Enforce  config.Enforce `json:"enforce,omitzero"`
	Timezone string         `json:"timezone,omitzero"`
}

type wireLimits struct {
	Budgets    []wireBudget          `json:"budgets,omitzero"`
	RPM        *wireRate             `json:"rpm,omitzero"`
	TPM        *wireRate             `json:"tpm,omitzero"`
	TPMCounts  config.TPMCounts      `json:"tpm_counts,omitzero"`
	Parallel   *wireRate             `json:"parallel,omitzero"`
	MaxRequest *wireMaxRequest       `json:"max_request,omitzero"`
	PerModel   map[string]wireLimits `json:"per_model,omitzero"`
}

type wireBudget struct {
	Unit    config.Unit    `json:"unit"`
	Amount  int64          `json:"amount"`
	Per     config.Period  `json:"per"`
	Enforce config.Enforce `json:"enforce,omitzero"`
	Soft    bool           `json:"soft,omitzero"`
	Alert   []int          `json:"alert,omitzero"`
	Raises  []wireRaise    `json:"raises,omitzero"`
}

type wireRaise struct {
	Amount int64     `json:"amount"`
	Until  time.Time `json:"until"`
	Note   string    `json:"note,omitzero"`
}

type wireRate struct {
	Limit   int64          `json:"limit"`
	Enforce config.Enforce `json:"enforce,omitzero"`
}

type wireMaxRequest struct {
	USD          *config.Nano `json:"usd,omitzero"` // nano-dollars
	InputTokens  *int64       `json:"input_tokens,omitzero"`
	OutputTokens *int64       `json:"output_tokens,omitzero"`
}

type wireAccess struct {
	Models    []string          `json:"models,omitzero"`
	Aliases   map[string]string `json:"aliases,omitzero"`
	Endpoints []string          `json:"endpoints,omitzero"`
	Regions   []string          `json:"regions,omitzero"`
}

type wireCacheRule struct {
	Scope string `json:"scope,omitzero"`
	TTL   int64  `json:"ttl_ns,omitzero"`
}

// wireNamed is a user or a tag.
type wireNamed struct {
	ID string `json:"id"`
	wireScope
}

type wireProject struct {
	ID   string `json:"id"`
	Team string `json:"team"`
	wireScope
}

type wireMember struct {
	Team string `json:"team"`
	User string `json:"user"`
	wireScope
}

type wireEndUser struct {
	ID  string `json:"id"`
	Org string `json:"org,omitzero"`
	wireScope
}

type wireOrg struct {
	ID string `json:"id"`
	wireScope
	wireAccess
}

type wireTeam struct {
	ID  string `json:"id"`
	Org string `json:"org,omitzero"`
	wireScope
	wireAccess
	AllowTags   []string       `json:"allow_tags,omitzero"`
	OnExhausted []string       `json:"on_exhausted,omitzero"`
	Cache       *wireCacheRule `json:"cache,omitzero"`
	Blocked     bool           `json:"blocked,omitzero"`
}

type wireKey struct {
	ID      string `json:"id"`
	Team    string `json:"team,omitzero"`
	User    string `json:"user,omitzero"`
	Org     string `json:"org,omitzero"`
	Project string `json:"project,omitzero"`
	wireScope
	wireAccess
	Expires time.Time      `json:"expires,omitzero"`
	Blocked bool           `json:"blocked,omitzero"`
	Tags    []string       `json:"tags,omitzero"`
	Cache   *wireCacheRule `json:"cache,omitzero"`
}

func scopeWire(s config.Scope) wireScope {
	w := wireScope{Enforce: s.Enforce}
	if l := limitsWire(s.Limits); !l.empty() {
		w.Limits = &l
	}
	if s.Timezone != nil {
		w.Timezone = s.Timezone.String()
	}
	return w
}

func (w *wireLimits) empty() bool {
	return w.Budgets == nil && w.RPM == nil && w.TPM == nil && w.TPMCounts == "" && w.Parallel == nil && w.MaxRequest == nil && w.PerModel == nil
}

func limitsWire(l config.Limits) wireLimits {
	w := wireLimits{
		RPM: (*wireRate)(l.RPM), TPM: (*wireRate)(l.TPM), TPMCounts: l.TPMCounts, Parallel: (*wireRate)(l.Parallel),
		MaxRequest: (*wireMaxRequest)(l.MaxRequest),
	}
	for _, b := range l.Budgets {
		x := wireBudget{Unit: b.Unit, Amount: b.Amount, Per: b.Per, Enforce: b.Enforce, Soft: b.Soft, Alert: b.Alert}
		for _, r := range b.Raises {
			x.Raises = append(x.Raises, wireRaise{r.Amount, r.Until.UTC(), r.Note})
		}
		w.Budgets = append(w.Budgets, x)
	}
	for name, inner := range l.PerModel {
		if w.PerModel == nil {
			w.PerModel = make(map[string]wireLimits, len(l.PerModel))
		}
		w.PerModel[name] = limitsWire(inner)
	}
	return w
}

func cacheWire(r *config.CacheRule) *wireCacheRule {
	if r == nil {
		return nil
	}
	return &wireCacheRule{r.Scope, int64(r.TTL)}
}

func teamWire(t *config.Team) wireTeam {
	return wireTeam{
		ID: t.ID, Org: t.Org, wireScope: scopeWire(t.Scope), wireAccess: wireAccess(t.Access),
		AllowTags: t.AllowTags, OnExhausted: t.OnExhausted, Cache: cacheWire(t.Cache), Blocked: t.Blocked,
	}
}

func keyWire(k *config.Key) wireKey {
	w := wireKey{
		ID: k.ID, Team: k.Team, User: k.User, Org: k.Org, Project: k.Project, wireScope: scopeWire(k.Scope),
		wireAccess: wireAccess(k.Access), Expires: k.Expires, Blocked: k.Blocked, Tags: k.Tags, Cache: cacheWire(k.Cache),
	}
	if !w.Expires.IsZero() {
		w.Expires = w.Expires.UTC()
	}
	return w
}

func (w *wireTeam) team() (t config.Team, err error) {
	t = config.Team{
		ID: w.ID, Org: w.Org, Access: config.Access(w.wireAccess), AllowTags: w.AllowTags, OnExhausted: w.OnExhausted,
		Blocked: w.Blocked,
	}
	if t.Cache, err = w.Cache.rule(); err != nil {
		return t, err
	}
	t.Scope, err = w.scope()
	return t, err
}

func (w *wireKey) key() (k config.Key, err error) {
	k = config.Key{
		ID: w.ID, Team: w.Team, User: w.User, Org: w.Org, Project: w.Project, Access: config.Access(w.wireAccess),
		Expires: w.Expires, Blocked: w.Blocked, Tags: w.Tags,
	}
	if !k.Expires.IsZero() {
		k.Expires = k.Expires.UTC()
	}
	if k.Cache, err = w.Cache.rule(); err != nil {
		return k, err
	}
	k.Scope, err = w.scope()
	return k, err
}

func (w *wireCacheRule) rule() (*config.CacheRule, error) {
	switch {
	case w == nil:
		return nil, nil
	case w.TTL < 0:
		return nil, errors.New("cache.ttl_ns must not be negative")
	}
	if err := known("cache.scope", w.Scope, "", "key", "team", "org", "global"); err != nil {
		return nil, err
	}
	return &config.CacheRule{Scope: w.Scope, TTL: time.Duration(w.TTL)}, nil
}

func (w *wireScope) scope() (s config.Scope, err error) {
	s.Enforce = w.Enforce
	if err := enforce(w.Enforce); err != nil {
		return s, err
	}
	if w.Timezone != "" {
		if s.Timezone, err = zone(w.Timezone); err != nil {
			return s, err
		}
	}
	if w.Limits != nil {
		s.Limits, err = w.Limits.limits()
	}
	return s, err
}

// limits also checks what would make two counters one, or a limit no limit.
func (w *wireLimits) limits() (l config.Limits, err error) {
	l = config.Limits{
		RPM: (*config.Rate)(w.RPM), TPM: (*config.Rate)(w.TPM), TPMCounts: w.TPMCounts, Parallel: (*config.Rate)(w.Parallel),
		MaxRequest: (*config.MaxRequest)(w.MaxRequest),
	}
	for _, r := range []*config.Rate{l.RPM, l.TPM, l.Parallel} {
		if r != nil {
			err = errors.Join(err, amount(r.Limit), enforce(r.Enforce))
		}
	}
	if m := l.MaxRequest; m != nil {
		for _, n := range []*int64{m.USD, m.InputTokens, m.OutputTokens} {
			if n != nil {
				err = errors.Join(err, amount(*n))
			}
		}
	}
	err = errors.Join(err, known("tpm_counts", l.TPMCounts, "", config.CountTotal, config.CountUncached, config.CountInput, config.CountOutput))
	for _, b := range w.Budgets {
		x, wrong := b.budget()
		if slices.ContainsFunc(l.Budgets, func(o config.Budget) bool { return o.Unit == x.Unit && o.Per == x.Per && o.Soft == x.Soft }) {
			wrong = errors.Join(wrong, fmt.Errorf("a second budget in %s per %s", x.Unit, x.Per))
		}
		err = errors.Join(err, wrong)
		l.Budgets = append(l.Budgets, x)
	}
	for name, inner := range w.PerModel {
		if inner.PerModel != nil || inner.MaxRequest != nil {
			err = errors.Join(err, fmt.Errorf("per_model.%s: holds more than the limits of a model", name))
			continue
		}
		one, wrong := inner.limits()
		err = errors.Join(err, wrong)
		if l.PerModel == nil {
			l.PerModel = make(map[string]config.Limits, len(w.PerModel))
		}
		l.PerModel[name] = one
	}
	return l, err
}

func (w *wireBudget) budget() (config.Budget, error) {
	b := config.Budget{Unit: w.Unit, Amount: w.Amount, Per: w.Per, Enforce: w.Enforce, Soft: w.Soft, Alert: w.Alert}
	err := errors.Join(
		amount(w.Amount), enforce(w.Enforce),
		known("unit", w.Unit, config.USD, config.Tokens, config.Requests),
		known("per", w.Per, config.Minute, config.Hour, config.Day, config.Week, config.Month, config.Days30, config.Lifetime),
	)
	for _, r := range w.Raises {
		err = errors.Join(err, amount(r.Amount))
		b.Raises = append(b.Raises, config.Raise{Amount: r.Amount, Until: r.Until.UTC(), Note: r.Note})
	}
	return b, err
}

// maxAmount is the largest amount that crosses Lua exactly.
const maxAmount = 1<<53 - 1

func amount(n int64) error {
	if n < 0 || n > maxAmount {
		return fmt.Errorf("amount %d is not between 0 and 2^53-1", n)
	}
	return nil
}

func enforce(e config.Enforce) error {
	return known("enforce", e, config.Inherit, config.Block, config.Audit, config.Off)
}

func known[T ~string](name string, v T, values ...T) error {
	if slices.Contains(values, v) {
		return nil
	}
	return fmt.Errorf("%s: unknown word %q", name, v)
}

// zones keeps the time zones that were read: reading one takes a file each time.
var zones sync.Map // string -> *time.Location

// zone is the time zone of a name. Local is refused: replicas must agree where a day begins.
func zone(name string) (*time.Location, error) {
	if at, ok := zones.Load(name); ok {
		return at.(*time.Location), nil //nolint:forcetypeassert // nothing else is stored
	}
	if name == "Local" {
		return nil, errors.New("timezone: Local is another one on each machine")
	}
	at, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("timezone: %w", err)
	}
	zones.Store(name, at)
	return at, nil
}
