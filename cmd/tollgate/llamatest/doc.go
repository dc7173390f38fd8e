// Package llamatest gives tests a real model server and a real client: llama.cpp's HTTP server with a tiny model that is
// written on the spot, and the official OpenAI client for Python.
//
// Both are Python packages pinned in .ci/pins/python.txt. `make test` installs them and exports where they are; for a
// go test typed by hand, run eval "$(make -s env)" first. Without them the test fails; under -short it is skipped.
//
// The package imports nothing of tollgate.
package llamatest
