package config

import "time"

// Nano is an amount of money in nano-dollars (10^-9 US dollars). As a price it is nano-dollars per million tokens.
type Nano = int64

// Config is one configuration file, joined with what it includes, checked, with every default filled in.
type Config struct {
	// File is the path it was loaded from, for messages.
	File string
	// Sources are all files it was made from, as they were found. Watch compares them with what is there now.
	Sources []Source

	Timezone *time.Location
	Listen   Listen
	TLS      *TLS // nil: plaintext
	Gateway  Gateway
	Drain    time.Duration
	Redis    Redis
	Postgres *Postgres // nil: identities from this file only
	Journal  *Journal  // nil: deferred writes wait in memory
	Ledger   Ledger
	Auth     Auth
	Identity IdentitySources
	Admin    Admin

	Enforce   Enforce
	Limits    Limits // of everybody together
	Providers map[string]Provider

	Models       []Model
	Routing      string // "tollgate" | "envoy"
	AccessGroups map[string][]string
	Endpoints    Endpoints

	Prices   map[string]Price // by "provider/model" or by model
	PriceMap *PriceMap
	Defaults Defaults

	Orgs        []Org
	Teams       []Team
	Users       []User
	Projects    []Project
	TeamMembers []TeamMember
	EndUsers    []EndUser
	Tags        []Tag
	Keys        []Key

	Cache   *Cache // nil: off
	Alerts  Alerts
	Errors  Errors
	Log     Log
	Debug   Debug
	Tracing *Tracing

	// NotYet lists the keys the file sets that this version accepts and does not act on. `run` and `serve` refuse a
	// configuration that has any; `check` lists them.
	NotYet []Finding
	// Missing lists unset variables and absent files that values refer to. Load with Options.Static leaves such
	// values empty; without it, Load fails with all of them.
	Missing []Finding
	// Warnings lists what is legal and probably not meant (a deployment of an unknown host without a price).
	Warnings []Finding
}

// Listen holds the addresses tollgate serves on: "host:port" or "unix:/path".
type Listen struct {
	ExtProc string
	Admin   string
	Health  string
	XDS     string // "" when absent
}

// TLS is the server side of extproc, xds and admin. The fields hold PEM.
type TLS struct {
	Cert, Key, ClientCA string
}

// Gateway is the Envoy that `tollgate run` starts and the xDS server programs.
type Gateway struct {
	Address string
}

// Redis says where counters and cached answers live.
type Redis struct {
	URL       string // "" means the in-process store
	Username  string
	Password  string
	CacheURL  string
	Prefix    string
	Deadline  time.Duration
	Scripts   string // "evalsha" | "eval"
	OnFailure OnFailure
}

// OnFailure says what happens while Redis does not answer: "deny", "local", "allow"; Cache is "miss" or "deny".
type OnFailure struct {
	Budgets, Rates, Cache, UnknownKey string
}

// Postgres is the database of identities and the ledger.
type Postgres struct {
	URL, Password string
	Migrate       bool
}

// Journal keeps deferred writes on disk while Redis is away.
type Journal struct {
	Dir   string
	Max   int64 // bytes
	Fsync time.Duration
}

// Ledger says how spend records are kept.
type Ledger struct {
	Retention time.Duration
	StreamMax int64  // records in Redis
	EndUser   string // "plain" | "hash" | "drop"
}

// Auth says where credentials are looked for.
type Auth struct {
	Mode       string // "required" | "optional"
	KeyHeaders []string
	JWT        []JWT
}

// JWT is an issuer whose tokens are credentials.
type JWT struct {
	Issuer, Audience, JWKS string
	Claims                 map[string]string
}

// IdentitySources names where the end user and the tags of a request are read.
type IdentitySources struct {
	EndUser, Tags []string
}

// Admin holds the callers of the admin API.
type Admin struct {
	Tokens []AdminToken
}

// AdminToken is one caller of the admin API.
type AdminToken struct {
	Name, Token, Role string
	Teams             []string
}

// Endpoints says which paths beside the built-in ones are served.
type Endpoints struct {
	Realtime   bool
	MaxSession time.Duration
	Pass       []string
}

// Defaults stand where a request or a row says nothing.
type Defaults struct {
	OutputTokens        int64
	EnforceOutputTokens bool
	Unpriced            string // "deny_budgeted" | "deny" | "allow"
	MaxBody             int64  // bytes
	EndUser             *Scope
	Key                 *Scope
	User                *Scope
	TeamMember          *Scope
}

// Cache is the response cache.
type Cache struct {
	TTL              time.Duration
	Scope            string // "key" | "team" | "org" | "global"
	MaxEntry         int64  // bytes
	MergeMisses      bool
	AllowCrossTenant bool
}

// Alerts are where crossings of budgets are sent.
type Alerts struct {
	Webhooks []Webhook
}

// Webhook is one receiver of alerts.
type Webhook struct {
	URL, Format, Secret string
}

// Errors are settings of refusals.
type Errors struct {
	BudgetStatus int // 429 | 402 | 403 | 422 | 400
}

// Log is the structured log.
type Log struct {
	Level, Format string
}

// Debug holds switches for debugging.
type Debug struct {
	TripsHeader bool
}

// Tracing sends OpenTelemetry spans, by OTLP over gRPC.
type Tracing struct {
	// OTLP is the receiver's URL, http:// without TLS and https:// with, or [TracingOn].
	OTLP string
}

// TracingOn leaves the receiver to the variables OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT.
const TracingOn = "on"
