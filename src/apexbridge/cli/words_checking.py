"""The texts of `doctor --fsck`, in English and Chinese."""

from collections.abc import Mapping

CHECKING: Mapping[str, tuple[str, str]] = {
    "fsck_invariant": ("Invariant", "不变式"),
    "fsck_looked_at": ("Looked at", "检查数"),
    "fsck_I1": ("every folder is whole", "每个文件夹都完整"),
    "fsck_I2": ("folders and skills have one name", "文件夹与技能同名且不冲突"),
    "fsck_I3": ("the index has each skill once", "索引包含且仅包含现有技能"),
    "fsck_I4": ("index, marker and folder agree", "索引、标记与文件夹一致"),
    "fsck_I5": ("what is marked is indexed", "有标记的都在索引中"),
    "fsck_I6": ("what fails changes nothing", "失败的操作不留改动"),
    "fsck_I7": ("what was reported done stays done", "已报告完成的不会丢失"),
    "fsck_I8": ("what was taken away is found nowhere", "已移除的不再出现"),
    "fsck_I9": ("an edit changes one field", "编辑只改一个字段"),
    "fsck_I10": ("nothing outlives its operation", "操作不留残余"),
    "fsck_I11": ("the record is unbroken, what is kept is whole", "记录链完好，保留的内容完整"),
    "fsck_I12": ("of many installs of a name one wins", "同名并发安装只有一个成功"),
    "fsck_ok": ("holds", "成立"),
    "fsck_violated": ("violations: {count}", "{count} 处违反"),
    "fsck_remarks": ("holds; remarks: {count}", "成立；{count} 处说明"),
    "fsck_by_tests": ("no disk shows it; tests prove it", "磁盘上不可见，由测试证明"),
    "fsck_sound": ("The data folder is sound: {path}", "数据文件夹完好：{path}"),
    "fsck_unsound": ("Violations: {count} in {path}", "{path} 中有 {count} 处违反"),
    "fsck_mended": (
        "Mended: unfinished {unfinished}, expired {expired}, temporary files {temporaries}, "
        "workspaces {workspaces}; index: added {added}, made anew {redone}, dropped {dropped}, "
        "waiting for the embedder {pending}",
        "已修复：未完成 {unfinished}，过期 {expired}，临时文件 {temporaries}，"
        "工作区 {workspaces}；索引：新增 {added}，重建 {redone}，移除 {dropped}，"
        "等待向量模型 {pending}",
    ),
}
