package identity

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

// wireRow is a row as it is stored. The revision stands first: the script that replaces copies reads it there.
type wireRow struct {
	Revision int64          `json:"revision"`
	Kind     Kind           `json:"kind"`
	ID       string         `json:"id"`
	Home     string         `json:"home,omitzero"`
	Secret   string         `json:"secret_sha256,omitzero"`
	Deleted  bool           `json:"deleted,omitzero"`
	Data     jsontext.Value `json:"data,omitzero"`
	Parts    []wireRow      `json:"parts,omitzero"`
}

// Encode is the row as it is stored: JSON with amounts as integers. The error says what of the row cannot be.
func (r *Row) Encode() ([]byte, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	w, err := r.wire()
	if err != nil {
		return nil, err
	}
	return json.Marshal(w, json.Deterministic(true))
}

func (r *Row) wire() (wireRow, error) {
	w := wireRow{Revision: r.Revision, Kind: r.Kind, ID: r.ID, Home: r.Home, Secret: r.Secret, Deleted: r.Deleted}
	if !r.Deleted {
		body, err := encodeData(r.Kind, r.Data)
		if err != nil {
			return w, fmt.Errorf("%s row %q: %w", r.Kind, r.ID, err)
		}
		w.Data = body
	}
	for _, p := range r.Parts {
		part, err := p.wire()
		if err != nil {
			return w, err
		}
		w.Parts = append(w.Parts, part)
	}
	return w, nil
}

// Decode reads a stored row. It takes nothing that Encode would not write: a member that is unknown or doubled, a value
// out of its range or an unknown word is an error, for a limit that is misread is a limit that does not hold.
func Decode(b []byte) (*Row, error) {
	var w wireRow
	if err := unmarshal(b, &w); err != nil {
		return nil, err
	}
	r, err := w.row()
	if err != nil {
		return nil, err
	}
	return r, r.Check()
}

func unmarshal(b []byte, into any) error {
	return json.Unmarshal(b, into, json.RejectUnknownMembers(true))
}

func (w wireRow) row() (*Row, error) {
	r := &Row{Revision: w.Revision, Kind: w.Kind, ID: w.ID, Home: w.Home, Secret: w.Secret, Deleted: w.Deleted}
	if w.Deleted == (len(w.Data) > 0) {
		return nil, errors.New("a row has data, and a tombstone has none")
	}
	var err error
	if !w.Deleted {
		if r.Data, err = decodeData(w.Kind, w.Data); err != nil {
			return nil, fmt.Errorf("%s row %q: %w", w.Kind, w.ID, err)
		}
	}
	if k := r.Key(); k != nil {
		k.SecretSHA256 = w.Secret
	}
	for _, p := range w.Parts {
		part, err := p.row()
		if err != nil {
			return nil, err
		}
		r.Parts = append(r.Parts, part)
	}
	return r, nil
}

// errSecret refuses a model whose deployments name their credential: whoever reads Redis would have it.
var errSecret = errors.New("a deployment's own credential cannot be stored: use envoy or client")

func holdsSecret(m *config.Model) bool {
	for i := range m.Deployments {
		if m.Deployments[i].Kind == config.CredentialSecret {
			return true
		}
	}
	return false
}

func encodeData(kind Kind, d any) ([]byte, error) {
	var w any
	switch d := d.(type) {
	case *config.Key:
		w = keyWire(d)
	case *config.TeamMember:
		w = wireMember{d.Team, d.User, scopeWire(d.Scope)}
	case *config.Team:
		w = teamWire(d)
	case *config.Project:
		w = wireProject{d.ID, d.Team, scopeWire(d.Scope)}
	case *config.User:
		w = wireNamed{d.ID, scopeWire(d.Scope)}
	case *config.Org:
		w = wireOrg{d.ID, scopeWire(d.Scope), wireAccess(d.Access)}
	case *config.EndUser:
		w = wireEndUser{d.ID, d.Org, scopeWire(d.Scope)}
	case *config.Tag:
		w = wireNamed{d.ID, scopeWire(d.Scope)}
	case *config.Model:
		if holdsSecret(d) {
			return nil, errSecret
		}
		w = modelWire(d)
	default:
		return nil, fmt.Errorf("no row has data of type %T", d)
	}
	b, err := json.Marshal(w, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	// What is written can be read: limits out of range are found here, and not by whoever reads the copy.
	if _, err := decodeData(kind, b); err != nil {
		return nil, err
	}
	return b, nil
}

// fromWire decodes a W and turns it into the configuration's T.
func fromWire[W any, T any](b []byte, turn func(*W) (T, error)) (any, error) {
	var w W
	if err := unmarshal(b, &w); err != nil {
		return nil, err
	}
	v, err := turn(&w)
	if err != nil {
		return nil, err
	}
	return &v, nil
}

func decodeData(kind Kind, b []byte) (any, error) {
	switch kind {
	case KindKey:
		return fromWire(b, (*wireKey).key)
	case KindMember:
		return fromWire(b, func(w *wireMember) (m config.TeamMember, err error) {
			m.Team, m.User = w.Team, w.User
			m.Scope, err = w.scope()
			return m, err
		})
	case KindTeam:
		return fromWire(b, (*wireTeam).team)
	case KindProject:
		return fromWire(b, func(w *wireProject) (p config.Project, err error) {
			p.ID, p.Team = w.ID, w.Team
			p.Scope, err = w.scope()
			return p, err
		})
	case KindUser:
		return fromWire(b, func(w *wireNamed) (u config.User, err error) {
			u.ID = w.ID
			u.Scope, err = w.scope()
			return u, err
		})
	case KindOrg:
		return fromWire(b, func(w *wireOrg) (o config.Org, err error) {
			o.ID, o.Access = w.ID, config.Access(w.wireAccess)
			o.Scope, err = w.scope()
			return o, err
		})
	case KindEndUser:
		return fromWire(b, func(w *wireEndUser) (u config.EndUser, err error) {
			u.ID, u.Org = w.ID, w.Org
			u.Scope, err = w.scope()
			return u, err
		})
	case KindTag:
		return fromWire(b, func(w *wireNamed) (t config.Tag, err error) {
			t.ID = w.ID
			t.Scope, err = w.scope()
			return t, err
		})
	case KindModel:
		return fromWire(b, (*wireModel).model)
	}
	return nil, fmt.Errorf("unknown kind %q", kind)
}

// revisionOf reads the revision of an encoded row without decoding it; false when the text does not begin as Encode
// writes it.
func revisionOf(b string) (int64, bool) {
	rest, ok := strings.CutPrefix(b, `{"revision":`)
	if !ok {
		return 0, false
	}
	digits, _, ok := strings.Cut(rest, ",")
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, ok && err == nil && n > 0
}
