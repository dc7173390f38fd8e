package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

// Directory is the keys of one configuration, by the hash of their secrets.
type Directory struct {
	keys map[[sha256.Size]byte]*Key
	ids  map[string]struct{} // of all keys
	rows rows
}

// Lookup finds a key by the SHA-256 of its secret. What the map's comparisons take tells an attacker something about a
// hash of his own choice, never about a secret.
func (d *Directory) Lookup(sum [sha256.Size]byte) (*Key, bool) {
	k, ok := d.keys[sum]
	return k, ok
}

// Keys calls do for every key whose secret is known.
func (d *Directory) Keys(do func(*Key)) {
	for _, k := range d.keys {
		do(k)
	}
}

// NewDirectory joins the keys of a configuration with their teams, orgs, projects and users. The error joins every
// fault found and names the fields. The directory refers to cfg, which must not change afterwards.
func NewDirectory(cfg *config.Config) (*Directory, error) {
	rows, err := indexRows(cfg)
	errs := []error{err}
	d := &Directory{
		keys: make(map[[sha256.Size]byte]*Key, len(cfg.Keys)), ids: make(map[string]struct{}, len(cfg.Keys)), rows: rows,
	}
	for i := range cfg.Keys {
		row := &cfg.Keys[i]
		if _, twice := d.ids[row.ID]; twice {
			errs = append(errs, fmt.Errorf("keys: id %q is used twice", row.ID))
		}
		d.ids[row.ID] = struct{}{}
		k, err := rows.key(row)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if row.SecretSHA256 == "" {
			continue // its secret is not known here, so nobody can present it
		}
		sum, err := parseSum(row.SecretSHA256)
		if err != nil {
			errs = append(errs, fmt.Errorf("keys[%s].secret_sha256: %w", row.ID, err))
			continue
		}
		if other, twice := d.keys[sum]; twice {
			errs = append(errs, fmt.Errorf("keys[%s].secret: is also the secret of key %q", row.ID, other.ID))
			continue
		}
		d.keys[sum] = k
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return d, nil
}

// rows are the identities of a configuration by id.
type rows struct {
	orgs     map[string]*config.Org
	teams    map[string]*config.Team
	projects map[string]*config.Project
	users    map[string]*config.User
	members  map[[2]string]*config.TeamMember // by team and user
}

func indexRows(cfg *config.Config) (rows, error) {
	var errs [5]error
	var r rows
	r.orgs, errs[0] = index("orgs", cfg.Orgs, func(o *config.Org) string { return o.ID })
	r.teams, errs[1] = index("teams", cfg.Teams, func(t *config.Team) string { return t.ID })
	r.projects, errs[2] = index("projects", cfg.Projects, func(p *config.Project) string { return p.ID })
	r.users, errs[3] = index("users", cfg.Users, func(u *config.User) string { return u.ID })
	r.members, errs[4] = index("team_members", cfg.TeamMembers, func(m *config.TeamMember) [2]string { return [2]string{m.Team, m.User} })
	return r, errors.Join(errs[:]...)
}

func index[R any, ID comparable](section string, list []R, id func(*R) ID) (map[ID]*R, error) {
	m := make(map[ID]*R, len(list))
	var errs []error
	for i := range list {
		key := id(&list[i])
		if _, twice := m[key]; twice {
			errs = append(errs, fmt.Errorf("%s: id %v is used twice", section, key))
		}
		m[key] = &list[i]
	}
	return m, errors.Join(errs...)
}

// key joins one key with its rows. A key's org is its own or its team's.
func (r rows) key(row *config.Key) (*Key, error) {
	k := Key{Key: row, User: r.users[row.User], Member: r.members[[2]string{row.Team, row.User}]}
	org := row.Org
	if row.Team != "" {
		if k.Team = r.teams[row.Team]; k.Team == nil {
			return nil, fmt.Errorf("keys[%s].team: there is no team %q", row.ID, row.Team)
		}
		if org == "" {
			org = k.Team.Org
		}
	}
	if org != "" {
		if k.Org = r.orgs[org]; k.Org == nil {
			return nil, fmt.Errorf("keys[%s]: there is no org %q", row.ID, org)
		}
	}
	if row.Project != "" {
		if k.Project = r.projects[row.Project]; k.Project == nil {
			return nil, fmt.Errorf("keys[%s].project: there is no project %q", row.ID, row.Project)
		}
	}
	return NewKey(k)
}

func parseSum(s string) (sum [sha256.Size]byte, err error) {
	raw, err := hex.DecodeString(s)
	if err != nil || len(raw) != len(sum) {
		return sum, fmt.Errorf("must be %d hexadecimal digits", 2*len(sum))
	}
	return [sha256.Size]byte(raw), nil
}
