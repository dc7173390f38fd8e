package usage

import "bytes"

// Flat amounts for what a tokenizer never sees as text. Counted as text, the base64 of one 10 MB picture would reserve
// some three million tokens.
const (
	messageTokens   = 4 // the frame around each message
	imageTokens     = 1600
	imageLowTokens  = 85 // "detail": "low"
	videoTokens     = 8 * imageTokens
	fileTokens      = imageTokens // at least, also for a file known by its id only
	fileBytesToken  = 64          // bytes of a document a token: text and page pictures of a PDF
	audioBytesToken = 400         // bytes of sound a token: 10 tokens a second of speech at 32 kbit/s
)

// messagesWeight is the weight of a chat's messages.
func messagesWeight(messages []byte) int64 {
	var weight int64
	for message := range elements(messages) {
		weight += messageTokens * 100
		if kindOf(message) != '{' {
			weight += valueWeight(message)
			continue
		}
		for name, value := range members(message) {
			switch string(name) {
			case "role":
			case "content":
				weight += contentWeight(value)
			default:
				weight += valueWeight(value)
			}
		}
	}
	return weight
}

// contentWeight is the weight of one message's content: a string or an array of parts.
func contentWeight(content []byte) int64 {
	if kindOf(content) != '[' {
		return valueWeight(content)
	}
	var weight int64
	for part := range elements(content) {
		if kindOf(part) != '{' {
			weight += valueWeight(part)
			continue
		}
		for name, value := range members(part) {
			weight += partWeight(name, value)
		}
	}
	return weight
}

// partWeight is the weight of one member of a content part. Only members that hold media by their name are flat: a
// text that merely begins like a data URL is text to the model, and reserves as text.
func partWeight(name, value []byte) int64 {
	switch string(name) {
	case "type":
		return 0
	case "image_url":
		if string(member(value, "detail")) == `"low"` {
			return imageLowTokens * 100
		}
		return imageTokens * 100
	case "video_url":
		return videoTokens * 100
	case "input_audio", "audio_url":
		return max(imageLowTokens, payloadBytes(value)/audioBytesToken) * 100
	case "file":
		return max(fileTokens, payloadBytes(value)/fileBytesToken) * 100
	case "source":
		if string(member(value, "type")) == `"base64"` {
			return max(fileTokens, payloadBytes(value)/fileBytesToken) * 100
		}
	}
	return valueWeight(value)
}

// payloadBytes is about how many bytes the base64 inside a media object stands for.
func payloadBytes(media []byte) int64 {
	if comma := bytes.IndexByte(media, ','); comma >= 0 && kindOf(media) == '"' {
		media = media[comma:]
	}
	return int64(len(media)) / 4 * 3
}
