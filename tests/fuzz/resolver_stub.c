/*
 * The resolver of fuzz runs, whose sandboxes have no way out: it is told of all of them and answers
 * nobody. Linked in place of engine/names/.
 */
#include <assert.h>

#include "engine/names/resolver.h"
#include "engine/sandbox/sandbox.h"

void resolver_begin(struct sandbox *sandbox)
{
	assert(!sandbox->box->spec.asks_names);
}

void resolver_narrowed(struct sandbox *sandbox)
{
	assert(!sandbox->asker);
}
