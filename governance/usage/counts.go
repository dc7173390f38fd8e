package usage

import "strconv"

// chatCounts are the members of an OpenAI chat usage object that count, under the names of all who speak the dialect.
type chatCounts struct {
	prompt, completion, total   int64
	hasPrompt, hasCompletion    bool
	cached, cacheWrite          int64
	hasCached                   bool
	cacheHit                    int64 // DeepSeek's prompt_cache_hit_tokens
	reasoning, outsideReasoning int64 // in the details; SGLang's, at the top level
}

// parseChatUsage reads a usage object; false when it holds no count. An explicit zero is a count. The text need not be
// valid JSON.
func parseChatUsage(object []byte) (Usage, bool) {
	var c chatCounts
	found := false
	for name, value := range members(object) {
		switch string(name) {
		case "prompt_tokens":
			c.prompt, c.hasPrompt = reported(value)
			found = found || c.hasPrompt
		case "completion_tokens":
			c.completion, c.hasCompletion = reported(value)
			found = found || c.hasCompletion
		case "total_tokens":
			total, ok := reported(value)
			c.total, found = total, found || ok
		case "prompt_tokens_details":
			c.cached, c.hasCached = reported(member(value, "cached_tokens"))
			c.cacheWrite, _ = reported(member(value, "cache_write_tokens"))
		case "completion_tokens_details":
			c.reasoning, _ = reported(member(value, "reasoning_tokens"))
		case "prompt_cache_hit_tokens":
			c.cacheHit, _ = reported(value)
		case "reasoning_tokens":
			c.outsideReasoning, _ = reported(value)
		}
	}
	return c.usage(), found
}

// usage brings the counts into the normal form. Where they contradict each other the larger reading stands: a
// confused upstream does not lower what is charged.
func (c *chatCounts) usage() Usage {
	if !c.hasPrompt {
		c.prompt = max(0, c.total-c.completion)
	}
	if !c.hasCompletion { // vLLM may send null
		c.completion = max(0, c.total-c.prompt)
	}
	if !c.hasCached {
		c.cached = c.cacheHit
	}
	u := Usage{
		Input:      max(c.prompt, c.cached+c.cacheWrite),
		CacheRead:  c.cached,
		CacheWrite: c.cacheWrite,
		Output:     c.completion,
		Reasoning:  max(c.reasoning, c.outsideReasoning),
	}
	// xAI counts reasoning beside the completion; its total tells.
	if u.Reasoning > 0 && c.hasPrompt && c.hasCompletion && c.total >= c.prompt+c.completion+u.Reasoning {
		u.Output += u.Reasoning
	}
	u.Output = max(u.Output, u.Reasoning)
	return u
}

// reported reads a count that an upstream reports, within 0 and MaxTokens; false when there is no number. Some report
// counts as floats.
func reported(value []byte) (int64, bool) {
	if len(value) == 0 {
		return 0, false
	}
	if c := value[0]; c != '-' && (c < '0' || c > '9') {
		return 0, false
	}
	if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
		return min(max(n, 0), MaxTokens), true
	}
	// Beyond an int64's range f is still right in sign and size, and infinite beyond a float's.
	f, err := strconv.ParseFloat(string(value), 64)
	switch {
	case f > 0:
		return int64(min(f, MaxTokens)), true
	case err != nil:
		return 0, false
	}
	return 0, true
}
