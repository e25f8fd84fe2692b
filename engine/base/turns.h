/*
 * What waits for a turn, in a line for each of those whose it is: the lines take turns, so that who
 * has much waiting keeps nobody else waiting for more than one of each of the others.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Embedded in what waits. */
struct turn {
	uint64_t whose;
	struct turn *next;	/* in its line */
	struct turn *last;	/* of the first in a line: the last one in it */
	struct turn *next_line; /* of the first in a line: the first in the line that is next */
};

struct turns {
	struct turn *first, *last; /* lines, by the first in each */
	uint32_t count;		   /* all that wait */
};

void turns_add(struct turns *turns, struct turn *turn, uint64_t whose);
/* Before all others: its turn was taken in vain. */
void turns_add_first(struct turns *turns, struct turn *turn, uint64_t whose);
struct turn *turns_take(struct turns *turns); /* NULL: nobody waits */
/* The next of this owner's, out of turn; NULL: none of its waits. */
struct turn *turns_take_of(struct turns *turns, uint64_t whose);
/* Something of this owner's waits. */
bool turns_waits(const struct turns *turns, uint64_t whose);
/* Which does wait. */
void turns_remove(struct turns *turns, struct turn *turn);
