package identity

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/limit"
)

// Kind is what a row is about. The kinds that count are named as package limit names their scopes.
type Kind string

// The kinds of rows, with the type of their Data.
const (
	KindKey     Kind = limit.KindKey     // *config.Key
	KindMember  Kind = limit.KindMember  // *config.TeamMember
	KindTeam    Kind = limit.KindTeam    // *config.Team
	KindProject Kind = limit.KindProject // *config.Project
	KindUser    Kind = limit.KindUser    // *config.User
	KindOrg     Kind = limit.KindOrg     // *config.Org
	KindEndUser Kind = "end_user"        // *config.EndUser
	KindTag     Kind = "tag"             // *config.Tag
	KindModel   Kind = "model"           // *config.Model: the registry of models
)

// Row is one version of an identity that lives outside the configuration file. It is shared and must not be changed.
type Row struct {
	Kind     Kind
	ID       string // see [Member] and [EndUser] for ids of two parts
	Revision int64  // above 0; a higher one replaces a lower one, everywhere
	Deleted  bool   // a tombstone: Data is nil
	// Home is the hash tag of the row's counters, stored with the row and never derived from a request: that of its
	// org, else its team, else its key; a user's own (see [limit.Home]). It is empty for what counts nowhere by itself,
	// such as a tag, whose counters stand with each tenant.
	Home string
	// Secret is the hex SHA-256 of a key's whole secret: keys are found by it. Only keys have one.
	Secret string
	// Data is the row itself, in the configuration's own type for its kind. Of a key, SecretSHA256 is Secret.
	Data any
	// Parts are the rows that a key belongs to, as they were when the key was written, so that one look is enough to
	// serve it. Only keys have parts. A part is an identity of its own, and whoever knows a higher revision uses that.
	Parts []*Row
}

// Ref names an identity: its kind, and its id (of a key the hex SHA-256 of its secret).
type Ref struct {
	Kind Kind
	ID   string
}

// Ref is where the row is found.
func (r *Row) Ref() Ref {
	if r.Kind == KindKey {
		return Ref{KindKey, r.Secret}
	}
	return Ref{r.Kind, r.ID}
}

// Member is the id of a user in a team. Ids of teams hold no slash, so it stands for one pair only.
func Member(team, user string) string { return team + "/" + user }

// EndUser is the id of an end user; the org is empty for one of every tenant.
func EndUser(org, id string) string { return org + "/" + id }

// Key reads Data; nil for another kind and for a tombstone. So do the functions below it.
func (r *Row) Key() *config.Key { return data[config.Key](r) }

// Team reads Data.
func (r *Row) Team() *config.Team { return data[config.Team](r) }

// Org reads Data.
func (r *Row) Org() *config.Org { return data[config.Org](r) }

// Project reads Data.
func (r *Row) Project() *config.Project { return data[config.Project](r) }

// User reads Data.
func (r *Row) User() *config.User { return data[config.User](r) }

// Member reads Data.
func (r *Row) Member() *config.TeamMember { return data[config.TeamMember](r) }

// data also serves a row that is not there.
func data[T any](r *Row) *T {
	if r == nil {
		return nil
	}
	d, _ := r.Data.(*T)
	return d
}

// maxID is the longest id of a row, in bytes.
const maxID = 512

// Check reports what is wrong with a row.
func (r *Row) Check() error {
	if err := r.check(); err != nil {
		return fmt.Errorf("%s row %q: %w", r.Kind, r.ID, err)
	}
	return nil
}

func (r *Row) check() error {
	switch {
	case !plain(r.ID) || r.ID == "":
		return fmt.Errorf("its id must be 1 to %d bytes without control characters", maxID)
	case r.Revision <= 0:
		return errors.New("its revision must be above 0")
	case !plain(r.Home) || strings.ContainsAny(r.Home, "{}"):
		return errors.New("its home must be a hash tag")
	case r.Home == "" && r.counts():
		return errors.New("it counts, so it must have a home")
	case (r.Kind == KindKey) != (r.Secret != ""):
		return errors.New("a key, and nothing else, has the hash of a secret")
	case r.Kind != KindKey && len(r.Parts) > 0:
		return errors.New("only a key has parts")
	case r.Deleted && (r.Data != nil || len(r.Parts) > 0):
		return errors.New("a tombstone holds nothing")
	}
	if r.Kind == KindKey {
		if _, err := parseSum(r.Secret); err != nil || r.Secret != strings.ToLower(r.Secret) {
			return errors.New("the hash of its secret must be 64 lower-case hexadecimal digits")
		}
	}
	if !r.Deleted {
		id, ok := r.own()
		if !ok || id != r.ID {
			return fmt.Errorf("its data is that of %T %q", r.Data, id)
		}
	}
	return r.checkParts()
}

// counts says whether rows of the kind have counters of their own, at one place.
func (r *Row) counts() bool { return r.Kind != KindEndUser && r.Kind != KindTag && r.Kind != KindModel }

// own is the id that the data gives the row; false when it is not of the row's kind.
func (r *Row) own() (string, bool) {
	switch d := r.Data.(type) {
	case *config.Key:
		return d.ID, r.Kind == KindKey && d.SecretSHA256 == r.Secret
	case *config.TeamMember:
		return Member(d.Team, d.User), r.Kind == KindMember
	case *config.Team:
		return d.ID, r.Kind == KindTeam
	case *config.Project:
		return d.ID, r.Kind == KindProject
	case *config.User:
		return d.ID, r.Kind == KindUser
	case *config.Org:
		return d.ID, r.Kind == KindOrg
	case *config.EndUser:
		return EndUser(d.Org, d.ID), r.Kind == KindEndUser
	case *config.Tag:
		return d.ID, r.Kind == KindTag
	case *config.Model:
		return d.Name, r.Kind == KindModel
	}
	return "", false
}

// checkParts holds a key to the kinds that it can belong to, each once.
func (r *Row) checkParts() error {
	seen := map[Kind]bool{}
	for _, p := range r.Parts {
		switch p.Kind {
		case KindMember, KindTeam, KindProject, KindUser, KindOrg:
		default:
			return fmt.Errorf("a key does not belong to a %q", p.Kind)
		}
		if seen[p.Kind] {
			return fmt.Errorf("it has two parts of kind %q", p.Kind)
		}
		seen[p.Kind] = true
		if err := p.Check(); err != nil {
			return err
		}
	}
	return nil
}

func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return len(s) <= maxID
}
