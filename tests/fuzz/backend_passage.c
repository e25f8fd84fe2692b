/*
 * Boxes of fuzz runs between two phases. Called by the engine through the class, and by the stub
 * for what is to happen.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>

#include "tests/fuzz/backend_state.h"

/* Every run in it has ended. */
int stub_box_clear(struct box *base, struct box_clear *clear)
{
	struct stub_box *box = box_of(base);
	struct stub *stub = stub_of(base->backend);

	assert(!box->clear);
	for (uint32_t i = 0; i < stub->runs_max; i++)
		if (stub->runs[i].taken && stub->runs[i].run.box == base)
			assert(stub->runs[i].state == RUN_ENDED);
	if (!box->up)
		return -ESRCH;
	if (choose(stub->choices, 8) == 7)
		return 1;
	box->clear = clear;
	return 0;
}

int stub_box_narrow(struct box *base, struct box_narrow *narrow)
{
	struct stub_box *box = box_of(base);

	assert(!box->narrow);
	if (!box->up || choose(stub_of(base->backend)->choices, 8) == 7)
		return -ESRCH;
	box->narrow = narrow;
	return 0;
}

int stub_box_freeze(struct box *base, struct box_freeze *freeze)
{
	struct stub_box *box = box_of(base);

	assert(!box->freeze);
	assert(!box->frozen);
	if (!box->up || choose(stub_of(base->backend)->choices, 8) == 7)
		return -ESRCH;
	box->freeze = freeze;
	freeze->id_base = 1 << 20;
	return 0;
}

int stub_box_thaw(struct box *base, struct box_freeze *freeze)
{
	struct stub_box *box = box_of(base);

	assert(!box->freeze);
	assert(box->frozen);
	if (choose(stub_of(base->backend)->choices, 8) == 7)
		return -ENOMEM;
	box->freeze = freeze;
	return 0;
}

int stub_box_phase(struct box *base, uint32_t version)
{
	const struct stub_box *box = box_of(base);

	assert(version > 1);
	return box->up ? 0 : -ESRCH;
}

int stub_box_network(const struct box *base, struct box_sockets *ret)
{
	struct stub *stub = stub_of(base->backend);

	if (choose(stub->choices, 4) == 3)
		return -ESRCH;
	if (choose(stub->choices, 2))
		return -ENOENT;
	*ret = (struct box_sockets){ .namespace_fd = open("/dev/null", O_RDONLY | O_CLOEXEC) };
	return ret->namespace_fd < 0 ? -ENOENT : 0;
}

void stub_passage_ends(struct stub *stub, struct stub_box *box)
{
	static const int errors[] = { 0, 0, -EBUSY, -EPIPE };
	struct box_clear *clear = box->clear;
	struct box_narrow *narrow = box->narrow;
	struct box_freeze *freeze = box->freeze;
	int error = errors[choose(stub->choices, 4)];

	if (freeze) {
		box->freeze = NULL;
		box->frozen = !box->frozen && !error;
		freeze->upper_fd = box->frozen ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
		freeze->done(freeze, box->frozen ? 0 : error);
	} else if (clear) {
		box->clear = NULL;
		clear->done(clear, error);
	} else {
		box->narrow = NULL;
		narrow->done(narrow, error);
	}
}
