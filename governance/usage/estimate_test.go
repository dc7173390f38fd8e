package usage

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"
)

func TestTextWeight(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, quoted string
		want         int64
	}{
		{"empty", `""`, 0},
		{"lower case and blank", `"ab c"`, 4 * 30},
		{"upper case", `"AZ"`, 2 * 95},
		{"digits", `"0189"`, 4 * 100},
		{"punctuation", `"-./"`, 3 * 85},
		{"two bytes", `"é"`, 2 * 35},
		{"three bytes", `"中"`, 3 * 60},
		{"four bytes", `"😀"`, 4 * 100},
		{"short escapes", `"\n\t\"\\\/"`, 5 * 85},
		{"escaped letter", `"\u0061\u0041\u0030"`, 30 + 95 + 100},
		{"escaped, two bytes", `"\u00E9"`, 2 * 35},
		{"escaped, three bytes", `"\u4e2d"`, 3 * 60},
		{"surrogate pair", `"\ud83d\ude00"`, 4 * 100},
		{"between others", `"a\ud83d\ude00b\u4e2dc"`, 3*30 + 400 + 180},
		{"long", `"` + strings.Repeat("abcdefgh ", 100) + `"`, 900 * 30},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := textWeight([]byte(tt.quoted)); got != tt.want {
				t.Errorf("textWeight(%s) = %d, want %d", tt.quoted, got, tt.want)
			}
		})
	}
}

// However a text is written in JSON, it weighs the same.
func TestTextWeightIgnoresEscapes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"Name a river.\n", "Grüße, мир, สวัสดี, 世界", "👩‍👩‍👧 e\u0301 \u200F", "{\"a\": [1, 2]}\\n", "\x01\x1f\x7f", "\uFFFD",
	} {
		plain, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := textWeight(plain), textWeight(escapeAll(text)); got != want {
			t.Errorf("%q weighs %d, escaped %d", text, got, want)
		}
	}
}

// escapeAll writes every character as \u escapes.
func escapeAll(text string) []byte {
	quoted := []byte{'"'}
	for _, unit := range utf16.Encode([]rune(text)) {
		quoted = fmt.Appendf(quoted, `\u%04x`, unit)
	}
	return append(quoted, '"')
}

func TestInputTokens(t *testing.T) {
	t.Parallel()
	image := strings.Repeat("iVBORw0K", 1<<17) // 1 MiB
	for _, tt := range []struct {
		name, members string
		want          int64
	}{
		{"nothing", ``, 0},
		{"no messages", `,"messages":[]`, 0},
		{"one message", `,"messages":[{"role":"user","content":"aaaa aaaa"}]`, 4 + 3},                    // 9 x 0.30
		{"two messages", `,"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]`, 9}, // 8.60
		{"white space is not shown", `,"messages":[ {
			"role" :	"user"}   ]`, 4},
		{"parts", `,"messages":[{"content":[{"type":"text","text":"aaaaaaaaaa"},{"text":"bbbbbbbbbb","type":"text"}]}]`, 4 + 6},
		{"image", `,"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + image + `"}}]}]`, 1604},
		{"small image", `,"messages":[{"content":[{"type":"image_url","image_url":{"url":"https://x","detail":"low"}}]}]`, 89},
		{"sound", `,"messages":[{"content":[{"type":"input_audio","input_audio":{"data":"` + image + `","format":"wav"}}]}]`,
			4 + (1<<20+30)*3/4/400},
		{"file by id", `,"messages":[{"content":[{"type":"file","file":{"file_id":"f-1"}}]}]`, 1604},
		{"file", `,"messages":[{"content":[{"type":"file","file":{"file_data":"` + image + `"}}]}]`, 4 + (1<<20+18)*3/4/64},
		{"video", `,"messages":[{"content":[{"type":"video_url","video_url":{"url":"https://x"}}]}]`, 12804},
		{"a text like a data url is text", `,"messages":[{"content":"data:;base64,` + strings.Repeat("a", 10_000) + `"}]`, 4 + 3007},
		{"tool call", `,"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"` + strings.Repeat("a", 1000) + `"}}]}]`,
			4 + 300 + 8},
		{"tools", `,"tools":[{"name":"` + strings.Repeat("a", 1000) + `"}]`, 303},
		{"numbers in tools", `,"tools":[` + strings.Repeat("11,", 999) + `11]`, 2000 + 301},
		{"empty objects in tools", `,"tools":[` + strings.Repeat("{},", 999) + `{}]`, 600 + 301},
		{"schema", `,"response_format":{"a":"` + strings.Repeat("a", 1000) + `"}`, 302},
		{"other members are not shown", `,"metadata":{"a":"` + strings.Repeat("a", 1000) + `"},"x":["aaaaaa"]`, 0},
		{"strange messages", `,"messages":["` + strings.Repeat("a", 100) + `",[["b"]],1]`, 12 + 31 + 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := parse(t, `{"model":"m"`+tt.members+`}`).InputTokens
			if diff := got - tt.want; diff < -1 || diff > 2 {
				t.Errorf("InputTokens = %d, want about %d", got, tt.want)
			}
		})
	}
}

// Text must never weigh nothing: what is not counted is not reserved.
func TestDeepContentIsCounted(t *testing.T) {
	t.Parallel()
	text := `"` + strings.Repeat("a", 1000) + `"`
	deep := strings.Repeat(`[`, 5000) + text + strings.Repeat(`]`, 5000)
	for _, body := range []string{
		`{"model":"m","messages":[{"content":` + deep + `}]}`,
		`{"model":"m","messages":[{"content":[{"type":"x","parts":` + deep + `}]}]}`,
		`{"model":"m","messages":[` + deep + `]}`,
		`{"model":"m","tools":` + deep + `}`,
	} {
		if got := parse(t, body).InputTokens; got < 300 {
			t.Errorf("InputTokens of %.60s... = %d, want at least 300", body, got)
		}
	}
}
