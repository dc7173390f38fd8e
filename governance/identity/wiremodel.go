package identity

import (
	"errors"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

// wireModel is an entry of the model registry.
type wireModel struct {
	Name        string           `json:"name"`
	Aliases     []string         `json:"aliases,omitzero"`
	Strategy    string           `json:"strategy"`
	Fallbacks   []string         `json:"fallbacks,omitzero"`
	Limits      *wireLimits      `json:"limits,omitzero"`
	Enforce     config.Enforce   `json:"enforce,omitzero"`
	Deployments []wireDeployment `json:"deployments,omitzero"`
}

type wireDeployment struct {
	Name        string                `json:"name"`
	URL         string                `json:"url"`
	Dialect     string                `json:"dialect"`
	Provider    string                `json:"provider,omitzero"`
	Model       string                `json:"model,omitzero"`
	Kind        config.CredentialKind `json:"credential_kind,omitzero"`
	Limits      *wireLimits           `json:"limits,omitzero"`
	Enforce     config.Enforce        `json:"enforce,omitzero"`
	Weight      int                   `json:"weight,omitzero"`
	Order       int                   `json:"order,omitzero"`
	Region      string                `json:"region,omitzero"`
	PriceFactor config.PriceFactor    `json:"price_factor_ppm,omitzero"`
	Price       *wirePrice            `json:"price,omitzero"`
	StreamUsage bool                  `json:"stream_usage,omitzero"`
}

// wirePrice is in nano-dollars per million tokens.
type wirePrice struct {
	Input         *config.Nano `json:"input,omitzero"`
	Output        *config.Nano `json:"output,omitzero"`
	CacheRead     *config.Nano `json:"cache_read,omitzero"`
	CacheWrite    *config.Nano `json:"cache_write,omitzero"`
	CacheWrite1h  *config.Nano `json:"cache_write_1h,omitzero"`
	CacheWrite12h *config.Nano `json:"cache_write_12h,omitzero"`
	Reasoning     *config.Nano `json:"reasoning,omitzero"`
}

func optionalLimits(l config.Limits) *wireLimits {
	w := limitsWire(l)
	if w.empty() {
		return nil
	}
	return &w
}

func modelWire(m *config.Model) wireModel {
	w := wireModel{
		Name: m.Name, Aliases: m.Aliases, Strategy: m.Strategy, Fallbacks: m.Fallbacks, Limits: optionalLimits(m.Limits), Enforce: m.Enforce,
	}
	for i := range m.Deployments {
		d := &m.Deployments[i]
		w.Deployments = append(w.Deployments, wireDeployment{
			Name: d.Name, URL: d.URL, Dialect: d.Dialect, Provider: d.Provider, Model: d.Model,
			Kind: d.Kind, Limits: optionalLimits(d.Limits), Enforce: d.Enforce, Weight: d.Weight, Order: d.Order,
			Region: d.Region, PriceFactor: d.PriceFactor, Price: (*wirePrice)(d.Price), StreamUsage: d.StreamUsage,
		})
	}
	return w
}

func (w *wireModel) model() (config.Model, error) {
	m := config.Model{Name: w.Name, Aliases: w.Aliases, Strategy: w.Strategy, Fallbacks: w.Fallbacks, Enforce: w.Enforce}
	err := errors.Join(enforce(w.Enforce), known("strategy", w.Strategy, "usage", "shuffle", "latency", "least_busy", "cost"))
	if w.Limits != nil {
		var wrong error
		m.Limits, wrong = w.Limits.limits()
		err = errors.Join(err, wrong)
	}
	for i := range w.Deployments {
		d, wrong := w.Deployments[i].deployment()
		err = errors.Join(err, wrong)
		m.Deployments = append(m.Deployments, d)
	}
	return m, err
}

func (w *wireDeployment) deployment() (config.Deployment, error) {
	d := config.Deployment{
		Name: w.Name, URL: w.URL, Dialect: w.Dialect, Provider: w.Provider, Model: w.Model,
		Kind: w.Kind, Enforce: w.Enforce, Weight: w.Weight, Order: w.Order, Region: w.Region, PriceFactor: w.PriceFactor,
		Price: (*config.Price)(w.Price), StreamUsage: w.StreamUsage,
	}
	err := errors.Join(
		enforce(w.Enforce),
		known("dialect", w.Dialect, "openai", "azure", "anthropic", "gemini", "bedrock"),
		known("credential_kind", w.Kind, config.CredentialNone, config.CredentialEnvoy, config.CredentialClient),
	)
	if w.Weight < 0 || w.PriceFactor < 0 {
		err = errors.Join(err, errors.New("weight and price factor must not be negative"))
	}
	if w.Limits != nil {
		var wrong error
		d.Limits, wrong = w.Limits.limits()
		err = errors.Join(err, wrong)
	}
	if p := w.Price; p != nil {
		for _, n := range []*int64{p.Input, p.Output, p.CacheRead, p.CacheWrite, p.CacheWrite1h, p.CacheWrite12h, p.Reasoning} {
			if n != nil {
				err = errors.Join(err, amount(*n))
			}
		}
	}
	return d, err
}
