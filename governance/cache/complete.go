package cache

import (
	"errors"
	"fmt"
)

// ErrNotStorable is wrapped by the error of an answer that is not worth keeping, and says why.
var ErrNotStorable = errors.New("the answer is not stored")

func notStorable(why string) error { return fmt.Errorf("%s: %w", why, ErrNotStorable) }

// asNotStorable makes err one that wraps ErrNotStorable, once.
func asNotStorable(err error) error {
	if errors.Is(err, ErrNotStorable) {
		return err
	}
	return fmt.Errorf("%w: %w", err, ErrNotStorable)
}

// storableJSON checks a whole JSON answer: complete, successful and not empty, by the rules of its endpoint. Endpoints
// whose rules are not known here are not stored.
func storableJSON(endpoint string, body []byte) error {
	var check func(*node) error
	switch endpoint {
	case "chat":
		check = checkChat
	case "completions":
		check = checkTexts
	case "embeddings":
		check = checkEmbeddings
	case "messages":
		check = checkMessage
	case "responses":
		check = checkResponse
	default:
		return notStorable("endpoint " + endpoint)
	}
	root, err := parseNode(body)
	if err != nil {
		return asNotStorable(err)
	}
	if !root.get("error").isNull() {
		return notStorable("an error")
	}
	return check(root)
}

// checkChat wants at least one choice, and of each a reason why it ended and something in its message.
func checkChat(root *node) error {
	return eachChoice(root, func(choice *node) bool {
		message := choice.get("message")
		if message.isNull() || message.kind != '{' {
			return false
		}
		for _, m := range message.members {
			if m.name != "role" && !m.value.empty() {
				return true
			}
		}
		return false
	})
}

func checkTexts(root *node) error {
	return eachChoice(root, func(choice *node) bool { return !choice.get("text").empty() })
}

func eachChoice(root *node, full func(choice *node) bool) error {
	choices := root.get("choices")
	if choices.empty() || choices.kind != '[' {
		return notStorable("no choices")
	}
	for _, choice := range choices.items {
		reason := choice.get("finish_reason")
		switch {
		case reason.isNull() || reason.kind != '"':
			return notStorable("a choice without an end")
		case reason.isText("error") || reason.isText("content_filter"):
			return notStorable("a choice that was broken off")
		case !full(choice):
			return notStorable("an empty choice")
		}
	}
	return nil
}

func checkEmbeddings(root *node) error {
	if data := root.get("data"); data.empty() || data.kind != '[' {
		return notStorable("no embeddings")
	}
	return nil
}

// checkMessage is for Anthropic's messages. A turn that was paused goes on with the same request, so it is no answer.
func checkMessage(root *node) error {
	reason := root.get("stop_reason")
	switch {
	case !root.get("type").isText("message"):
		return notStorable("not a message")
	case reason.isNull() || reason.isText("pause_turn"):
		return notStorable("a message without an end")
	case root.get("content").empty():
		return notStorable("an empty message")
	}
	return nil
}

func checkResponse(root *node) error {
	if !root.get("status").isText("completed") {
		return notStorable("a response that is not completed")
	}
	if root.get("output").empty() {
		return notStorable("an empty response")
	}
	return nil
}
