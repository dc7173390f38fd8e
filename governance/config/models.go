package config

// Provider is a provider as a scope.
type Provider struct {
	Limits  Limits
	Enforce Enforce
}

// Model is a public model name and what serves it.
type Model struct {
	Name        string // may end in "/*" or "*"
	Aliases     []string
	Strategy    string // "usage" | "shuffle" | "latency" | "least_busy" | "cost"
	Fallbacks   []string
	Limits      Limits
	Enforce     Enforce
	Deployments []Deployment
}

// Deployment is one upstream of a model.
type Deployment struct {
	Name        string // unique in the file
	URL         string // scheme, host, optional port and path
	Dialect     string // "openai" | "azure" | "anthropic" | "gemini" | "bedrock"
	Provider    string // whose price row; derived from the host when absent, "" when unknown
	Model       string // the upstream's name; "" means the public name
	Credential  string // the secret; "envoy" and "client" are kept as CredentialKind
	Kind        CredentialKind
	Limits      Limits // rpm and tpm short forms are folded in here
	Enforce     Enforce
	Weight      int // default 1
	Order       int // default 1
	Region      string
	PriceFactor PriceFactor // the zero value means 1
	Price       *Price      // overrides the table
	StreamUsage bool        // default true
}

// CredentialKind says who puts the credential on the upstream request.
type CredentialKind string

// The kinds of credential.
const (
	CredentialNone   CredentialKind = ""       // none is configured, none is sent
	CredentialSecret CredentialKind = "secret" // tollgate puts Deployment.Credential
	CredentialEnvoy  CredentialKind = "envoy"  // Envoy adds it
	CredentialClient CredentialKind = "client" // the client's own passes
)

// PriceFactor is contract price / list price in millionths. Zero stands for 1.
type PriceFactor int64

// Price is one row of prices, nano-dollars per million tokens. A nil field is "not given"; 0 is a price.
type Price struct {
	Input, Output, CacheRead, CacheWrite, CacheWrite1h, CacheWrite12h, Reasoning *Nano
}

// PriceMap is a file with more price rows.
type PriceMap struct {
	File, Format string
}
