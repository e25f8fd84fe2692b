/* Signals as a descriptor, for as long as something is under way that must end in order. */
#pragma once

#include <signal.h>
#include <stddef.h>

struct signals {
	int fd; /* readable: signals_next() has one. -1: none are taken */
	sigset_t before;
};

/* Takes these; what whoever started us ignores stays ignored. 0 or -errno; closed in any case. */
int signals_open(struct signals *signals, const int *numbers, size_t count);
/* The one that came next; 0: none did. */
int signals_next(struct signals *signals);
/* What came and was not taken has its effect now. */
void signals_close(struct signals *signals);
