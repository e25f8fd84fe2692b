/*
 * Lines that take turns. Called by whoever has more to do than places to do it. Always true: those
 * of one owner are taken in the order in which they were added, and between two of them at most
 * one of each other owner. Lines are few, as many as clients that wait: they are searched.
 */
#include "engine/base/turns.h"

#include <assert.h>
#include <stddef.h>

static void line_add_last(struct turns *turns, struct turn *line)
{
	line->next_line = NULL;
	if (turns->last)
		turns->last->next_line = line;
	else
		turns->first = line;
	turns->last = line;
}

static void line_add_first(struct turns *turns, struct turn *line)
{
	line->next_line = turns->first;
	turns->first = line;
	if (!turns->last)
		turns->last = line;
}

/* NULL: there is none. *ret_before: the line before it, NULL where it is the first. */
static struct turn *line_find(const struct turns *turns, uint64_t whose, struct turn **ret_before)
{
	struct turn *line = turns->first;

	*ret_before = NULL;
	while (line && line->whose != whose) {
		*ret_before = line;
		line = line->next_line;
	}
	return line;
}

static void line_remove(struct turns *turns, struct turn *line, struct turn *before)
{
	if (before)
		before->next_line = line->next_line;
	else
		turns->first = line->next_line;
	if (turns->last == line)
		turns->last = before;
}

void turns_add(struct turns *turns, struct turn *turn, uint64_t whose)
{
	struct turn *before, *line = line_find(turns, whose, &before);

	turn->whose = whose;
	turn->next = NULL;
	turn->last = turn;
	turns->count++;
	if (!line) {
		line_add_last(turns, turn);
		return;
	}
	line->last->next = turn;
	line->last = turn;
}

void turns_add_first(struct turns *turns, struct turn *turn, uint64_t whose)
{
	struct turn *before, *line = line_find(turns, whose, &before);

	if (line)
		line_remove(turns, line, before);
	turn->whose = whose;
	turn->next = line;
	turn->last = line ? line->last : turn;
	turns->count++;
	line_add_first(turns, turn);
}

struct turn *turns_take(struct turns *turns)
{
	struct turn *turn = turns->first, *rest;

	if (!turn)
		return NULL;
	line_remove(turns, turn, NULL);
	turns->count--;
	rest = turn->next;
	if (rest) {
		rest->last = turn->last;
		line_add_last(turns, rest);
	}
	return turn;
}

struct turn *turns_take_of(struct turns *turns, uint64_t whose)
{
	struct turn *before, *line = line_find(turns, whose, &before);

	if (line)
		turns_remove(turns, line);
	return line;
}

bool turns_waits(const struct turns *turns, uint64_t whose)
{
	struct turn *before;

	return line_find(turns, whose, &before) != NULL;
}

void turns_remove(struct turns *turns, struct turn *turn)
{
	struct turn *before, *line = line_find(turns, turn->whose, &before), *at = line;

	assert(line);
	turns->count--;
	if (line == turn) {
		struct turn *rest = turn->next;

		if (!rest) {
			line_remove(turns, line, before);
			return;
		}
		rest->last = line->last;
		rest->next_line = line->next_line;
		if (before)
			before->next_line = rest;
		else
			turns->first = rest;
		if (turns->last == line)
			turns->last = rest;
		return;
	}
	while (at->next != turn)
		at = at->next;
	at->next = turn->next;
	if (line->last == turn)
		line->last = at;
}
