//go:build ignore

// This program writes prices.csv and models.csv, the facts this package embeds, from two wider tables of the same
// names: go run gen.go -from DIR. Their columns are found by name, their prices are US dollars per million tokens.
//
// It leaves out what must not be used as a price: models that are paid for by anything but tokens (rerankers,
// moderation, video by the second), models without a price for input at the standard tier, models whose every
// standard price is 0 (previews; zero in a table of facts means "not known" more often than "free", and whoever runs
// one for free says so in the configuration), and prices of a cache write below that of the input, which no provider
// has and which are mistakes of the source.
package main

import (
	"bufio"
	"encoding/csv"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const attribution = `# Facts from LiteLLM's price map (https://github.com/BerriAI/litellm, model_prices_and_context_window.json),
# copyright (c) 2023 Berri AI, MIT License. Written by gen.go; do not edit: rows of the configuration override it.
`

// row is one line of a source table, by column.
type row map[string]string

// model identifies one.
type model struct{ provider, name string }

func (r row) model() model { return model{r["provider"], r["model"]} }

func main() {
	log.SetFlags(0)
	from := flag.String("from", "", "directory with the source's prices.csv and models.csv")
	flag.Parse()
	if *from == "" {
		log.Fatal("gen: -from is required")
	}
	if err := generate(*from); err != nil {
		log.Fatalf("gen: %v", err)
	}
}

func generate(from string) error {
	prices, err := read(filepath.Join(from, "prices.csv"))
	if err != nil {
		return err
	}
	models, err := read(filepath.Join(from, "models.csv"))
	if err != nil {
		return err
	}
	priced := pricedByToken(prices)
	if err := write("prices.csv", priceLines(prices, priced)); err != nil {
		return err
	}
	return write("models.csv", modelLines(models, priced))
}

func read(path string) ([]row, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var rows []row
	for _, line := range lines[1:] {
		r := make(row, len(line))
		for i, column := range lines[0] {
			r[column] = line[i]
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// pricedByToken are the models whose standard price is one of tokens.
func pricedByToken(prices []row) map[model]bool {
	priced := map[model]bool{}
	for _, r := range prices {
		if r["service_tier"] != "standard" || r["over_input_tokens"] != "0" || r["in"] == "" {
			continue
		}
		switch r["mode"] {
		case "chat", "completion", "responses":
			priced[r.model()] = r["out"] != "" && (dollars(r["in"]) > 0 || dollars(r["out"]) > 0)
		case "embedding":
			priced[r.model()] = dollars(r["in"]) > 0
		}
	}
	return priced
}

func priceLines(prices []row, priced map[model]bool) []string {
	columns := []string{"in", "out", "cache_read", "cache_write", "cache_write_1h", "cache_write_12h", "out_reasoning"}
	var lines []string
	for _, r := range prices {
		if !priced[r.model()] {
			continue
		}
		if r["cache_write"] != "" && dollars(r["cache_write"]) < dollars(r["in"]) {
			r["cache_write"] = ""
		}
		fields := []string{r["provider"], r["model"], r["service_tier"], r["over_input_tokens"]}
		empty := true
		for _, column := range columns {
			fields = append(fields, r[column])
			empty = empty && r[column] == ""
		}
		if !empty {
			lines = append(lines, strings.Join(fields, ","))
		}
	}
	return lines
}

func modelLines(models []row, priced map[model]bool) []string {
	var lines []string
	for _, r := range models {
		output := r["max_output_tokens"]
		if output == "0" {
			output = ""
		}
		if priced[r.model()] && (output != "" || r["threshold_inclusive"] != "") {
			lines = append(lines, strings.Join([]string{r["provider"], r["model"], output, r["threshold_inclusive"]}, ","))
		}
	}
	return lines
}

// dollars is for comparisons within this program only; "" is 0.
func dollars(s string) float64 {
	if s == "" {
		return 0
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		log.Fatalf("gen: price %q: %v", s, err)
	}
	return f
}

func write(path string, lines []string) error {
	slices.Sort(lines)
	lines = slices.Compact(lines)
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(file)
	w.WriteString(attribution)
	for _, line := range lines {
		if strings.ContainsAny(line, "\"\n") {
			return fmt.Errorf("%s: a field needs quotes: %s", path, line)
		}
		w.WriteString(line + "\n")
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return file.Close()
}
