/*
 * The table of ops. Called by request.c. An op that is not in it is answered as unsupported.
 */
#include "engine/request/request_ops.h"

#include "engine/exec/exec_reader.h"
#include "engine/request/inlet.h"
#include "engine/request/request.h"

static const struct op_info ops[DSEC_OP_COUNT] = {
	[DSEC_OP_NOP] = { "nop", TARGET_HOME, 0, nop_part, .cancel = NULL, .for_everyone = true },
	[DSEC_OP_CANCEL] = { "cancel", TARGET_HOME, 0, cancel_part, .cancel = NULL,
			     .for_everyone = true },
	[DSEC_OP_CAPABILITIES] = { "capabilities", TARGET_HOME, 0, capabilities_part,
				   .cancel = NULL, .for_everyone = true },
	[DSEC_OP_CREATE] = { "create", TARGET_SHARED, sizeof(struct dsec_wire_create), create_part,
			     .cancel = create_part_cancel },
	[DSEC_OP_DESTROY] = { "destroy", TARGET_ALL, sizeof(struct dsec_wire_select), destroy_part,
			      .cancel = NULL, .for_everyone = true },
	[DSEC_OP_EXEC] = { "exec", TARGET_SUBJECT, sizeof(struct dsec_wire_exec), exec_part,
			   reader_cancel, reader_input, reader_credit, .needs_client = true },
	[DSEC_OP_ATTACH] = { "attach", TARGET_SUBJECT, sizeof(struct dsec_wire_attach), attach_part,
			     reader_cancel, reader_input, reader_credit, .needs_client = true },
	[DSEC_OP_LIST] = { "list", TARGET_TURNS, sizeof(struct dsec_wire_list), list_part,
			   .cancel = NULL, .for_everyone = true },
	[DSEC_OP_STATS] = { "stats", TARGET_ALL, sizeof(struct dsec_wire_select), stats_part,
			    .cancel = NULL, .for_everyone = true },
	[DSEC_OP_CHANGE] = { "change", TARGET_ALL, sizeof(struct dsec_wire_change), change_part,
			     .cancel = NULL },
	[DSEC_OP_FETCHED] = { "fetched", TARGET_ALL, sizeof(struct dsec_wire_fetched), fetched_part,
			      .cancel = NULL, .for_everyone = true },
	[DSEC_OP_INSPECT] = { "inspect", TARGET_SUBJECT, 0, inspect_part, .cancel = NULL,
			      .for_everyone = true },
	[DSEC_OP_SIGNAL] = { "signal", TARGET_SUBJECT, 0, signal_part, .cancel = NULL },
	[DSEC_OP_RESIZE] = { "resize", TARGET_SUBJECT, 0, resize_part, .cancel = NULL },
	[DSEC_OP_IMAGE] = { "image", TARGET_ID, sizeof(struct dsec_wire_image), image_part,
			    image_part_cancel, .input = image_input, .needs_client = true,
			    .for_everyone = true },
	[DSEC_OP_CHECK] = { "check", TARGET_ALL, 0, check_part, .cancel = NULL,
			    .for_everyone = true },
	[DSEC_OP_FILE] = { "file", TARGET_SUBJECT, sizeof(struct dsec_wire_file), file_part,
			   file_part_cancel, .input = file_input, .credit = file_credit,
			   .needs_client = true },
	[DSEC_OP_INPUT] = { "input", TARGET_TICKET, BODY_BYTES, input_part, inlet_cancel,
			    .needs_client = true, .for_everyone = true },
	[DSEC_OP_PORT] = { "port", TARGET_SUBJECT, sizeof(struct dsec_wire_port), port_part,
			   port_part_cancel, .needs_client = true },
	[DSEC_OP_FUNCTION] = { "function", TARGET_TURNS, sizeof(struct dsec_wire_function),
			       function_part, .cancel = NULL },
	[DSEC_OP_INVOKE] = { "invoke", TARGET_SHARED, sizeof(struct dsec_wire_invoke), invoke_part,
			     invoke_part_cancel, .needs_client = true },
	[DSEC_OP_SUBSCRIBE] = { "subscribe", TARGET_JOURNAL, sizeof(struct dsec_wire_subscribe),
				subscribe_part, subscribe_cancel, .credit = subscribe_credit,
				.needs_client = true, .for_everyone = true },
	[DSEC_OP_POLICY] = { "policy", TARGET_ID, sizeof(struct dsec_wire_policy), policy_part,
			     .cancel = NULL, .for_everyone = true },
	[DSEC_OP_PHASE] = { "phase", TARGET_SUBJECT, sizeof(struct dsec_wire_phase), phase_part,
			    .cancel = NULL },
	[DSEC_OP_FORK] = { "fork", TARGET_SUBJECT, sizeof(struct dsec_wire_fork), fork_part,
			   .cancel = fork_part_cancel },
	[DSEC_OP_CREDIT] = { "credit", TARGET_TICKET, 0, credit_part, .cancel = NULL,
			     .for_everyone = true },
};

const struct op_info *op_of(const struct request *request)
{
	return request->entry.op < DSEC_OP_COUNT && ops[request->entry.op].run ?
		       &ops[request->entry.op] :
		       NULL;
}
