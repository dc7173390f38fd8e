package config

import (
	"net/url"
	"slices"
	"strings"
)

// knownProviders have rows in the built-in price table.
var knownProviders = []string{
	"openai", "azure", "azure_ai", "anthropic", "gemini", "vertex", "bedrock", "bedrock_mantle", "mistral", "groq", "xai",
	"deepseek", "together", "fireworks", "cohere",
}

// providerHosts says whose a host is. A pattern that begins with a dot or hyphen is the end of a name, one that ends in
// a dot its beginning.
var providerHosts = []struct{ pattern, provider string }{
	{"api.openai.com", "openai"},
	{"eu.api.openai.com", "openai"},
	{"us.api.openai.com", "openai"},
	{".openai.azure.com", "azure"},
	{".services.ai.azure.com", "azure_ai"},
	{"api.anthropic.com", "anthropic"},
	{"generativelanguage.googleapis.com", "gemini"},
	{"-aiplatform.googleapis.com", "vertex"},
	{"aiplatform.googleapis.com", "vertex"},
	{"bedrock-runtime.", "bedrock"},
	{"bedrock-runtime-fips.", "bedrock"},
	{"api.mistral.ai", "mistral"},
	{"api.groq.com", "groq"},
	{"api.x.ai", "xai"},
	{"api.deepseek.com", "deepseek"},
	{"api.together.xyz", "together"},
	{"api.together.ai", "together"},
	{"api.fireworks.ai", "fireworks"},
	{"api.cohere.com", "cohere"},
	{"api.cohere.ai", "cohere"},
}

// providerOf is the provider that an upstream's host belongs to; "" when the host is nobody's.
func providerOf(upstream string) string {
	u, err := url.Parse(upstream)
	if err != nil {
		return ""
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	for _, p := range providerHosts {
		switch {
		case strings.HasPrefix(p.pattern, ".") || strings.HasPrefix(p.pattern, "-"):
			if strings.HasSuffix(host, p.pattern) && len(host) > len(p.pattern) {
				return p.provider
			}
		case strings.HasSuffix(p.pattern, "."):
			// Only at Amazon: a prefix alone can be anybody's host.
			if strings.HasPrefix(host, p.pattern) && (strings.HasSuffix(host, ".amazonaws.com") || strings.HasSuffix(host, ".amazonaws.com.cn")) {
				return p.provider
			}
		case host == p.pattern:
			return p.provider
		}
	}
	return ""
}

// priceRow is the row of prices that is meant for a provider's model: the one of that provider, else the one of the
// model at all providers. A key whose first part is a known provider is never a model's name as a whole.
func (c *Config) priceRow(provider, model string) (Price, bool) {
	if row, found := c.Prices[provider+"/"+model]; found && provider != "" {
		return row, true
	}
	if first, _, qualified := strings.Cut(model, "/"); qualified && slices.Contains(knownProviders, first) {
		return Price{}, false
	}
	row, found := c.Prices[model]
	return row, found
}
