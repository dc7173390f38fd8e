package cache

// checker watches a stream that is kept as it comes for whether it is complete, successful and not empty.
type checker struct {
	endpoint string // "messages" or "responses"
	ended    bool
	full     bool
	paused   bool
}

// event takes the data of one event.
func (c *checker) event(data []byte) error {
	if c.ended {
		return notStorable("data after the end of the stream")
	}
	root, err := parseNode(data)
	if err != nil {
		return err
	}
	kind := root.get("type")
	switch {
	case kind == nil || kind.kind != '"':
		return notStorable("an event without a type")
	case kind.isText("error") || !root.get("error").isNull():
		return notStorable("the stream reports an error")
	}
	if c.endpoint == "messages" {
		c.message(string(kind.text), root)
		return nil
	}
	switch string(kind.text) {
	case "response.completed":
		c.ended = true
		c.full = true
		return checkResponse(root.get("response"))
	case "response.failed", "response.incomplete":
		return notStorable("a response that is not completed")
	}
	return nil
}

func (c *checker) message(kind string, root *node) {
	switch kind {
	case "content_block_start":
		c.full = true
	case "message_delta":
		c.paused = c.paused || root.get("delta").get("stop_reason").isText("pause_turn")
	case "message_stop":
		c.ended = true
	}
}

// complete judges the stream once it has ended.
func (c *checker) complete() error {
	switch {
	case !c.ended || c.paused:
		return notStorable("the stream is incomplete")
	case !c.full:
		return notStorable("an empty stream")
	}
	return nil
}
