package identity

import (
	"cmp"
	"fmt"
)

// Joined is a key of Redis together with the rows that it belongs to.
type Joined struct {
	// Key is nil when there is no such key: it is nowhere, deleted, or hidden by the file's key of the same id.
	Key *Key
	// Deleted is a row that the key cannot do without and that was deleted; nil when none was.
	Deleted *Row
	// Entries are those of the key and of what it belongs to, and Rows what they held when they were joined (nil where
	// there is none). What the configuration file has is not among them.
	Entries []*Entry
	Rows    []*Row
}

// Current says whether the entries still hold the rows that were joined.
func (j *Joined) Current() bool {
	for i, e := range j.Entries {
		if e.Row() != j.Rows[i] || e.Gone() {
			return false
		}
	}
	return true
}

// Join joins a key with its rows, as far as memory has them. What the file has under the same id stands in front of
// what Redis has. The error says that a row is missing, or contradicts another: reading the entries again may mend it.
func (m *Memory) Join(d *Directory, e *Entry) (Joined, error) {
	var j Joined
	row := j.use(e)
	if row == nil || row.Deleted {
		return j, nil
	}
	if _, hidden := d.ids[row.ID]; hidden {
		return j, nil
	}
	err := j.join(m, d, row)
	return j, err
}

func (j *Joined) use(e *Entry) *Row {
	row := e.Row()
	j.Entries, j.Rows = append(j.Entries, e), append(j.Rows, row)
	return row
}

func (j *Joined) join(m *Memory, d *Directory, row *Row) error {
	k := Key{Key: row.Key()}
	// part is the row of an identity that the file does not have; nil when there is none.
	part := func(kind Kind, id string) *Row {
		ref := Ref{kind, id}
		var seed *Row
		for _, p := range row.Parts {
			if p.Ref() == ref {
				seed = p
			}
		}
		return j.use(m.Part(ref, seed))
	}
	var missing error
	// needed is part for what the key cannot do without.
	needed := func(kind Kind, id string) *Row {
		r := part(kind, id)
		switch {
		case r == nil:
			missing = cmp.Or(missing, fmt.Errorf("key %q belongs to the %s %q, which is nowhere", row.ID, kind, id))
		case r.Deleted:
			j.Deleted = r
		}
		return r
	}
	org := k.Key.Org
	if id := k.Key.Team; id != "" {
		if k.Team = d.rows.teams[id]; k.Team == nil {
			k.Team = needed(KindTeam, id).Team()
		}
		if k.Team != nil {
			org = cmp.Or(org, k.Team.Org)
		}
	}
	if id := k.Key.Project; id != "" {
		if k.Project = d.rows.projects[id]; k.Project == nil {
			k.Project = needed(KindProject, id).Project()
		}
	}
	if id := k.Key.User; id != "" {
		if k.User = d.rows.users[id]; k.User == nil {
			k.User = part(KindUser, id).User()
		}
		if team := k.Key.Team; team != "" {
			if k.Member = d.rows.members[[2]string{team, id}]; k.Member == nil {
				k.Member = part(KindMember, Member(team, id)).Member()
			}
		}
	}
	if org != "" {
		if k.Org = d.rows.orgs[org]; k.Org == nil {
			k.Org = needed(KindOrg, org).Org()
		}
	}
	if missing != nil || j.Deleted != nil {
		return missing
	}
	key, err := NewKey(k)
	j.Key = key
	return err
}
