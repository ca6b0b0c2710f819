"""The Chinese words of what a check of the data folder finds, by code."""

from apexbridge.locales.phrase import LocalizedText

CHECKS = {
    "fsck_folder_broken": LocalizedText(
        "文件夹“{path}”不是完整的技能：{detail}",
        "请修复或移走它；可能保留有较早的状态（apexbridge undo、rollback）。",
    ),
    "fsck_name_differs": LocalizedText("文件夹“{path}”中的技能名为“{name}”", "请重命名其中之一。"),
    "fsck_names_collide": LocalizedText(
        "以下名称在某些系统上无法区分：{paths}", "请保留一个，移走其余的。"
    ),
    "fsck_index_none": LocalizedText("尚无索引（{count} 个技能）", "首次搜索时会创建。"),
    "fsck_index_damaged": LocalizedText("索引已损坏：{detail}", "重建：apexbridge doctor --fix"),
    "fsck_row_missing": LocalizedText(
        "“{name}”不在索引中", "下次搜索会加入；也可运行 apexbridge doctor --fix"
    ),
    "fsck_row_orphaned": LocalizedText(
        "索引中有“{name}”，但这里没有该技能",
        "下次搜索会移除；也可运行 apexbridge doctor --fix",
    ),
    "fsck_row_stale": LocalizedText(
        "索引中的“{name}”是另一状态", "下次搜索会更新；也可运行 apexbridge doctor --fix"
    ),
    "fsck_marker_missing": LocalizedText(
        "“{name}”已在索引中，但没有标记", "下次搜索会补上；也可运行 apexbridge doctor --fix"
    ),
    "fsck_marker_stale": LocalizedText(
        "“{name}”的标记与文件夹的状态不符",
        "下次搜索会重写；也可运行 apexbridge doctor --fix",
    ),
    "fsck_marker_foreign": LocalizedText(
        "“{name}”的标记属于 {found}，而现在使用的是 {expected}",
        "下次搜索会重写；也可运行 apexbridge doctor --fix",
    ),
    "fsck_marker_without_row": LocalizedText(
        "“{name}”标记为已索引，但索引中没有它",
        "下次搜索会加入；也可运行 apexbridge doctor --fix",
    ),
    "fsck_gone_has_row": LocalizedText(
        "“{name}”已被移除，但索引中仍有它", "下次搜索会移除；也可运行 apexbridge doctor --fix"
    ),
    "fsck_off_has_row": LocalizedText(
        "“{name}”已停用，但索引中仍有它", "下次搜索会移除；也可运行 apexbridge doctor --fix"
    ),
    "fsck_busy": LocalizedText("另一进程正在更改技能，因此未能检查全部内容"),
    "fsck_staging_left": LocalizedText(
        "“{path}”是未完成的操作留下的", "下次启动会清除；也可运行 apexbridge doctor --fix"
    ),
    "fsck_temporary_left": LocalizedText(
        "“{path}”在写入时进程已结束", "清除：apexbridge doctor --fix"
    ),
    "fsck_workspace_left": LocalizedText(
        "“{path}”是进程已不在的运行留下的", "清除：apexbridge doctor --fix"
    ),
    "fsck_trash_unfinished": LocalizedText(
        "“{path}”中没有可恢复的内容", "下次启动会清除；也可运行 apexbridge doctor --fix"
    ),
    "fsck_trash_unreadable": LocalizedText(
        "已移除的“{name}”无法再读取：{detail}", "无法重建：如有需要请重新安装。"
    ),
    "fsck_version_broken": LocalizedText(
        "“{name}”保留的一个版本已不是原样：{detail}",
        "若是崩溃留下的半成品，下次启动或 apexbridge doctor --fix 会处理；被改动的版本无法重建。",
    ),
    "fsck_by_hand_new": LocalizedText("“{name}”没有安装记录：是手动放入的"),
    "fsck_by_hand_gone": LocalizedText(
        "“{name}”不在这里，但最后的记录是“{action}”：可能被手动移除，或该更改没有发生"
    ),
    "fsck_by_hand_edited": LocalizedText("“{name}”自 {at} 起被手动改动过"),
    "fsck_there_after_all": LocalizedText(
        "“{name}”在这里，但最后的记录是已移除：可能被手动放回，或该更改没有发生"
    ),
}
