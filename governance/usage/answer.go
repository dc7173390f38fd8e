package usage

// The places of an OpenAI chat answer, whole or as a chunk of a stream; the two differ in message and delta only.
const (
	_ node = iota // passed over
	atRoot
	atUsage
	atModel
	atTier
	atObject
	atError
	atBeside
	atGroq
	atChoices
	atChoice
	atIndex
	atFinish
	atDelta
	atText
	atPart
	atToolCalls
	atToolCall
	atFunction
	atAudio
)

// chatShape is where things are in a chat answer.
var chatShape = shape{
	atRoot: {action: walk, members: []edge{
		{"choices", atChoices}, {"usage", atUsage}, {"model", atModel}, {"error", atError}, {"object", atObject},
		{"service_tier", atTier}, {"x_groq", atGroq},
		// What Azure and OpenAI send in chunks that have no choices and are no usage chunks.
		{"prompt_filter_results", atBeside}, {"moderation", atBeside},
	}},
	atUsage:   {action: raw},
	atModel:   {action: raw},
	atTier:    {action: raw},
	atObject:  {action: raw},
	atError:   {action: raw},
	atBeside:  {action: walk},
	atGroq:    {action: walk, members: []edge{{"usage", atUsage}, {"error", atError}}},
	atChoices: {action: walk, elements: atChoice},
	atChoice: {action: walk, members: []edge{
		{"index", atIndex}, {"delta", atDelta}, {"finish_reason", atFinish}, {"message", atDelta}, {"text", atText},
	}},
	atIndex:  {action: raw},
	atFinish: {action: raw},
	atDelta: {action: walk, members: []edge{
		{"content", atText}, {"reasoning_content", atText}, {"reasoning", atText}, {"refusal", atText},
		{"tool_calls", atToolCalls}, {"function_call", atFunction}, {"audio", atAudio},
	}},
	atText:      {action: length, elements: atPart},
	atPart:      {action: walk, members: []edge{{"text", atText}, {"thinking", atText}}},
	atToolCalls: {action: walk, elements: atToolCall},
	atToolCall:  {action: walk, members: []edge{{"function", atFunction}, {"custom", atFunction}}},
	atFunction:  {action: walk, members: []edge{{"name", atText}, {"arguments", atText}, {"input", atText}}},
	atAudio:     {action: walk, members: []edge{{"transcript", atText}}},
}

// maxTracked is how many choices are followed one by one.
const maxTracked = 64

// chatAnswer is what one chat answer's documents (one for JSON, many for a stream) add up to.
type chatAnswer struct {
	usage    Usage
	hasUsage bool
	failed   bool
	output   int64 // decoded bytes of text
	model    string
	tier     string

	seen, finished uint64 // choices by index
	untracked      bool   // there was a choice of a higher index
	finish         bool   // of any choice

	now document
}

// document is what is known of the document being read.
type document struct {
	choices bool // it has an array of choices
	filled  bool // which is not empty
	beside  bool // it has something that is no usage
	usage   bool // it has usage
	index   int  // of the choice being read
	stop    bool // that choice has a finish_reason
}

// begin implements answer.
func (a *chatAnswer) begin() { a.now = document{} }

// more implements answer.
func (a *chatAnswer) more() bool { return a.now.filled || a.now.beside }

// usageOnly implements answer: the extra chunk of stream_options.include_usage has no choice.
func (a *chatAnswer) usageOnly() bool { return a.now.choices && a.now.usage && !a.more() }

// result implements answer. It is complete when each choice that was begun has its finish_reason.
func (a *chatAnswer) result() Result {
	return Result{
		Usage:       a.usage,
		HasUsage:    a.hasUsage,
		Complete:    a.finish && !a.untracked && a.seen == a.finished,
		Failed:      a.failed,
		FinishSeen:  a.finish,
		OutputBytes: a.output,
		Model:       a.model,
		ServiceTier: a.tier,
	}
}

// enter implements sink.
func (a *chatAnswer) enter(n node) {
	switch n {
	case atChoices:
		a.now.choices = true
	case atChoice:
		a.now.filled, a.now.index, a.now.stop = true, 0, false
	case atBeside:
		a.now.beside = true
	}
}

// leave implements sink.
func (a *chatAnswer) leave(n node) {
	if n != atChoice {
		return
	}
	a.finish = a.finish || a.now.stop
	if a.now.index >= maxTracked {
		a.untracked = true
		return
	}
	bit := uint64(1) << a.now.index
	a.seen |= bit
	if a.now.stop {
		a.finished |= bit
	}
}

// text implements sink.
func (a *chatAnswer) text(bytes int) { a.output += int64(bytes) }

// value implements sink.
func (a *chatAnswer) value(n node, value []byte) {
	switch n {
	case atUsage:
		if u, ok := parseChatUsage(value); ok {
			a.usage, a.hasUsage, a.now.usage = u, true, true
		}
	case atError:
		// Nil is an error of great length.
		if value == nil || !isNull(value) {
			a.failed, a.now.beside = true, true
		}
	case atObject:
		if string(value) == `"error"` { // SGLang's flat error
			a.failed, a.now.beside = true, true
		}
	case atModel:
		if a.model == "" && len(value) <= maxName {
			a.model = stringOf(value)
		}
	case atTier:
		if len(value) <= maxKey && !isNull(value) && !sameString(value, a.tier) {
			a.tier = stringOf(value)
		}
	case atIndex:
		index, _ := reported(value)
		a.now.index = int(index)
	case atFinish:
		a.now.stop = !isNull(value)
	}
}

// sameString compares a string as written with a text, without building one: every chunk of a stream repeats it.
func sameString(quoted []byte, text string) bool {
	return len(quoted) == len(text)+2 && string(quoted[1:len(quoted)-1]) == text
}

// stringOf is the text of a JSON string, "" for any other value.
func stringOf(value []byte) string {
	if kindOf(value) != '"' {
		return ""
	}
	return string(unescape(value))
}
