"""The English words of what a check of the data folder finds, by code."""

from apexbridge.locales.phrase import LocalizedText

CHECKS = {
    "fsck_folder_broken": LocalizedText(
        "The folder '{path}' is no whole skill: {detail}",
        "Mend it, or move it away; an earlier state may be kept ('apexbridge undo', 'rollback').",
    ),
    "fsck_name_differs": LocalizedText(
        "The folder '{path}' holds a skill named '{name}'", "Rename one of the two."
    ),
    "fsck_names_collide": LocalizedText(
        "These have one name in letters that not every system keeps apart: {paths}",
        "Keep one, and move the others away.",
    ),
    "fsck_index_none": LocalizedText(
        "There is no index yet (skills: {count})", "The first search makes it."
    ),
    "fsck_index_damaged": LocalizedText(
        "The index is damaged: {detail}", "Make it anew: apexbridge doctor --fix"
    ),
    "fsck_row_missing": LocalizedText(
        "'{name}' is not in the index",
        "The next search adds it, and so does: apexbridge doctor --fix",
    ),
    "fsck_row_orphaned": LocalizedText(
        "The index has '{name}', which does not lie here",
        "The next search drops it, and so does: apexbridge doctor --fix",
    ),
    "fsck_row_stale": LocalizedText(
        "The index has '{name}' in another state",
        "The next search brings it up, and so does: apexbridge doctor --fix",
    ),
    "fsck_marker_missing": LocalizedText(
        "'{name}' is in the index and not marked so",
        "The next search marks it, and so does: apexbridge doctor --fix",
    ),
    "fsck_marker_stale": LocalizedText(
        "The marker of '{name}' tells of another state than the folder's",
        "The next search writes it anew, and so does: apexbridge doctor --fix",
    ),
    "fsck_marker_foreign": LocalizedText(
        "The marker of '{name}' was written for {found}, and {expected} is used",
        "The next search writes it anew, and so does: apexbridge doctor --fix",
    ),
    "fsck_marker_without_row": LocalizedText(
        "'{name}' is marked as indexed, and the index does not have it",
        "The next search adds it, and so does: apexbridge doctor --fix",
    ),
    "fsck_gone_has_row": LocalizedText(
        "'{name}' was taken away, and the index still has it",
        "The next search drops it, and so does: apexbridge doctor --fix",
    ),
    "fsck_off_has_row": LocalizedText(
        "'{name}' is switched off, and the index still has it",
        "The next search drops it, and so does: apexbridge doctor --fix",
    ),
    "fsck_busy": LocalizedText(
        "Another process is changing skills now, so not all could be checked"
    ),
    "fsck_staging_left": LocalizedText(
        "'{path}' was left by an operation that did not end",
        "The next start removes it, and so does: apexbridge doctor --fix",
    ),
    "fsck_temporary_left": LocalizedText(
        "'{path}' was being written when the process ended", "Remove it: apexbridge doctor --fix"
    ),
    "fsck_workspace_left": LocalizedText(
        "'{path}' was left by a run whose process is gone", "Remove it: apexbridge doctor --fix"
    ),
    "fsck_trash_unfinished": LocalizedText(
        "'{path}' holds nothing that could be brought back",
        "The next start removes it, and so does: apexbridge doctor --fix",
    ),
    "fsck_trash_unreadable": LocalizedText(
        "'{name}' was taken away and cannot be read any more: {detail}",
        "It cannot be made anew: install it again if it is needed.",
    ),
    "fsck_version_broken": LocalizedText(
        "A kept version of '{name}' is not what it was: {detail}",
        "What a crash left half done is put right by the next start or 'apexbridge doctor --fix'; "
        "a version that was changed cannot be made anew.",
    ),
    "fsck_by_hand_new": LocalizedText(
        "'{name}' was never installed: somebody put it there by hand"
    ),
    "fsck_by_hand_gone": LocalizedText(
        "'{name}' does not lie here, though the last record of it is '{action}': "
        "it was removed by hand, or the change did not happen"
    ),
    "fsck_by_hand_edited": LocalizedText("'{name}' was changed by hand since {at}"),
    "fsck_there_after_all": LocalizedText(
        "'{name}' lies here, though the last record is that it was taken away: "
        "it was put back by hand, or the change did not happen"
    ),
}
