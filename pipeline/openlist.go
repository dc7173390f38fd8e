package pipeline

// openList is the Writes that are open, by their deadlines. All have the same time, so the newest stands last.
type openList struct{ first, last *Writes }

func (l *openList) add(w *Writes) {
	w.isOpen, w.prev, w.next = true, l.last, nil
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
}

// remove takes a Writes out; one that is not in does no harm.
func (l *openList) remove(w *Writes) {
	if !w.isOpen {
		return
	}
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.isOpen, w.prev, w.next = false, nil, nil
}
