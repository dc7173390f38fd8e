package usage

// maxHeld bounds what of one event is withheld, in bytes. A usage chunk is under one kilobyte; what is longer is none
// and passes.
const maxHeld = 64 << 10

// holder withholds the event that may have to be dropped and lets all else pass, without copying a piece that passes
// as it is. What it returns is never written to again.
type holder struct {
	piece []byte
	mark  int    // piece[:mark] is dealt with
	out   []byte // what passes of this piece and of what was withheld before
	on    bool   // an event is withheld
	start int    // where in the piece it begins; 0 when it began in an earlier one
	held  []byte // what of it earlier pieces brought

	swallow bool // the last piece ended with the CR of a dropped event
}

// begin starts a piece.
func (h *holder) begin(piece []byte) {
	h.piece, h.mark, h.start, h.out = piece, 0, 0, nil
}

// hold withholds the piece from offset on.
func (h *holder) hold(offset int) { h.on, h.start = true, offset }

// release lets the withheld event pass, its part still to come included.
func (h *holder) release() {
	if h.on {
		h.on = false
		h.emit(h.held)
		h.held = nil
	}
}

// drop removes the withheld event, which ends before the offset.
func (h *holder) drop(behind int) {
	h.emit(h.piece[h.mark:h.start])
	h.on, h.held, h.mark = false, nil, behind
}

// lateLF removes the LF at the beginning of the piece when it belongs to a dropped event.
func (h *holder) lateLF(behind int) {
	if h.swallow {
		h.mark = behind
	}
}

// finish ends the piece and returns what passes.
func (h *holder) finish() []byte {
	h.swallow = h.mark == len(h.piece) && h.mark > 0 && h.piece[h.mark-1] == '\r'
	if !h.on {
		h.emit(h.piece[h.mark:])
		return h.out
	}
	h.emit(h.piece[h.mark:h.start])
	h.held = append(h.held, h.piece[h.start:]...)
	if len(h.held) > maxHeld {
		h.release()
	}
	return h.out
}

// emit appends without ever growing into memory behind b.
func (h *holder) emit(b []byte) {
	if len(b) == 0 {
		return
	}
	if h.out == nil {
		h.out = b[:len(b):len(b)]
		return
	}
	h.out = append(h.out, b...)
}
