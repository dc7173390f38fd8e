package governance

import (
	"math"
	"sync"

	"github.com/tollgate-proxy/tollgate/governance/usage"
)

// Bounds of what is learned. A factor outside is a model or a client that cannot be trusted to stay as it is.
const (
	leastFactor, mostFactor = 0.2, 1.5
	bytesPerToken           = 4.0 // of an answer, before anything is learned
	leastRatio, mostRatio   = 1.0, 16.0
	weight                  = 0.05 // of one request in the moving average
	mostModels              = 1000 // beyond it nothing new is learned: wildcard models come by name
)

// learned is how real usage relates to the estimates, by model. The zero value is ready; it is safe for concurrent use.
type learned struct {
	mu     sync.RWMutex
	models map[string]*ratios
}

type ratios struct {
	input  float64 // real input tokens / estimated
	output float64 // bytes of text / output tokens
}

// input is the estimate corrected by what was learned of the model.
func (l *learned) input(model string, estimate int64) int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	r := l.models[model]
	if r == nil {
		return estimate
	}
	return int64(math.Ceil(float64(estimate) * r.input)) // exact for a model whose estimates are right
}

// output is how many tokens a number of bytes stands for.
func (l *learned) output(model string, n int64) int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	ratio := bytesPerToken
	if r := l.models[model]; r != nil {
		ratio = r.output
	}
	return int64(float64(n)/ratio + 0.999999)
}

// see learns from one settled request.
func (l *learned) see(model string, estimate int64, u usage.Usage, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.models[model]
	if r == nil {
		if len(l.models) >= mostModels {
			return
		}
		if l.models == nil {
			l.models = map[string]*ratios{}
		}
		r = &ratios{input: 1, output: bytesPerToken}
		l.models[model] = r
	}
	if estimate > 0 && u.Input > 0 {
		r.input += weight * (clamp(float64(u.Input)/float64(estimate), leastFactor, mostFactor) - r.input)
	}
	if text := u.Output - u.Reasoning; bytes > 0 && text > 0 {
		r.output += weight * (clamp(float64(bytes)/float64(text), leastRatio, mostRatio) - r.output)
	}
}

func clamp(x, least, most float64) float64 { return min(max(x, least), most) }
