package cache

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ErrUncacheable is wrapped by the error of a request whose answer depends on, or changes, something that the request
// does not hold: the web, a stored conversation, a tool that the provider runs.
var ErrUncacheable = errors.New("the answer must not be cached")

// topMember writes one member of the request's own object, unless it cannot change the answer.
func (c *canonical) topMember(name []byte) error {
	switch string(name) {
	case "stream", "stream_options", "user", "safety_identifier", "metadata", "model":
		return c.dec.SkipValue()
	case "store":
		raw, err := c.dec.ReadValue()
		if err == nil && raw.Kind() == 't' {
			err = uncacheable(name)
		}
		return err
	case "cache":
		raw, err := c.dec.ReadValue()
		if err != nil {
			return err
		}
		return c.namespace(raw)
	}
	before := c.dec.InputOffset()
	if err := c.anyMember(name); err != nil {
		return err
	}
	raw := bytes.TrimLeft(c.body[before:c.dec.InputOffset()], " \t\r\n:")
	if dependsOnMore(string(name), raw) {
		return uncacheable(name)
	}
	return nil
}

// namespace keeps apart what LiteLLM's cache.namespace keeps apart. The rest of cache controls the cache and not the
// answer.
func (c *canonical) namespace(raw jsontext.Value) error {
	var controls struct {
		Namespace jsontext.Value `json:"namespace"`
	}
	if raw.Kind() != '{' {
		return nil
	}
	if err := json.Unmarshal(raw, &controls); err != nil {
		return err
	}
	if controls.Namespace.Kind() == '"' {
		c.appendText([]byte("cache"))
		return c.text(controls.Namespace)
	}
	return nil
}

func uncacheable(name []byte) error { return fmt.Errorf("%s: %w", name, ErrUncacheable) }

// dependsOnMore reports whether a member, by its raw value, ties the answer to something outside of the request.
func dependsOnMore(name string, raw jsontext.Value) bool {
	switch name {
	case "background":
		return raw.Kind() == 't'
	case "previous_response_id", "conversation", "web_search_options", "container":
		return raw.Kind() != 'n'
	case "prompt":
		return raw.Kind() == '{' // a stored prompt of the Responses API; text and tokens are arrays and strings
	case "mcp_servers":
		return raw.Kind() != 'n' && string(raw) != "[]"
	case "tools":
		return raw.Kind() != 'n' && !clientTools(raw)
	case "toolConfig":
		return raw.Kind() == '{' && !clientToolConfig(raw)
	}
	return false
}

// clientTools reports whether all of a list of tools are ones that the client runs. A kind that is not known counts as
// the provider's.
func clientTools(raw jsontext.Value) bool {
	var tools []map[string]jsontext.Value
	if err := json.Unmarshal(raw, &tools); err != nil {
		return false
	}
	for _, tool := range tools {
		if !clientTool(tool) {
			return false
		}
	}
	return true
}

func clientTool(tool map[string]jsontext.Value) bool {
	if kind := string(tool["type"]); kind != "" && kind != "null" {
		return kind == `"function"` || kind == `"custom"`
	}
	if _, anthropic := tool["name"]; anthropic {
		return true
	}
	for name := range tool {
		switch name {
		case "functionDeclarations", "function_declarations": // Gemini
		case "toolSpec", "cachePoint": // Bedrock
		default:
			return false
		}
	}
	return true
}

// clientToolConfig is clientTools for Bedrock, which puts the list one level down. Gemini's member of the same name
// holds no tools.
func clientToolConfig(raw jsontext.Value) bool {
	var config struct {
		Tools jsontext.Value `json:"tools"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return false
	}
	return len(config.Tools) == 0 || config.Tools.Kind() == 'n' || clientTools(config.Tools)
}
