"""What skills are usually about, and what needs none: the company in which a request is judged.

How near is near depends on the request. Among thousands of skills the others tell; among six there
are too few to tell, so these stand beside them. And a request that lies nearer to small talk than
to any skill is small talk. All of this is measured against and never found.
"""

_ENGLISH_SKILLS = """
Extract text and tables from PDF files and fill in their forms.
Write commit messages that say what changed and why.
Review a pull request for bugs, security and style.
Turn a spreadsheet into charts and a short report.
Plan a trip with flights, hotels and a day-by-day schedule.
Translate documents and keep their layout.
Set up a continuous integration pipeline for a repository.
Deploy containers to a Kubernetes cluster.
Write unit tests and measure their coverage.
Find out why a web page loads slowly and make it faster.
Design a database schema and its migrations.
Write marketing copy for social media posts.
Summarise meetings into decisions and action items.
Resize, crop and convert images in bulk.
Cut, subtitle and export video clips.
Transcribe audio recordings into text.
Build a slide deck from an outline.
Analyse stock prices and company reports.
Check contracts for risky clauses.
Prepare lesson plans and exercises for students.
Send and sort e-mails and calendar invitations.
Query a data warehouse with SQL.
Train and evaluate machine learning models.
Scrape product data from web sites.
Generate icons, logos and illustrations.
Monitor servers and answer alerts at night.
Write technical documentation for an API.
Create a React component with tests and stories.
Refactor legacy code step by step.
Manage passwords and secrets safely.
Track personal expenses and a monthly budget.
Suggest recipes for what is in the fridge.
Write song lyrics, stories and poems.
Screen job applications and write job advertisements.
Automate the browser to fill in forms and take screenshots.
Draw diagrams of systems and processes.
Clean up and validate messy data files.
Control lights and devices in the home.
Research a topic and write up the sources.
Make a game with a simple physics engine.
"""

_CHINESE_SKILLS = """
从 PDF 文件中提取文字和表格，并填写表单。
撰写清楚说明改动内容和原因的提交信息。
审查合并请求中的缺陷、安全问题和代码风格。
把电子表格做成图表和简短的报告。
规划旅行，包括航班、酒店和每日行程。
翻译文档并保留原有排版。
为代码仓库搭建持续集成流水线。
把容器部署到 Kubernetes 集群。
编写单元测试并统计覆盖率。
找出网页加载缓慢的原因并优化。
设计数据库表结构和迁移脚本。
撰写社交媒体的营销文案。
把会议内容整理成决定和待办事项。
批量缩放、裁剪和转换图片。
剪辑视频、添加字幕并导出。
把录音转写成文字。
根据大纲制作演示文稿。
分析股票价格和公司财报。
检查合同中的风险条款。
为学生准备教案和练习题。
收发和整理邮件与日程邀请。
用 SQL 查询数据仓库。
训练和评估机器学习模型。
从网站抓取商品数据。
生成图标、标志和插画。
监控服务器并处理夜间告警。
为接口编写技术文档。
编写带测试的前端组件。
逐步重构遗留代码。
安全地管理密码和密钥。
记录个人开支和每月预算。
根据冰箱里的食材推荐菜谱。
创作歌词、故事和诗歌。
筛选简历并撰写招聘启事。
自动操作浏览器，填写表单并截图。
绘制系统和流程示意图。
清洗和校验杂乱的数据文件。
控制家里的灯光和设备。
调研一个主题并整理资料来源。
制作带有简单物理效果的小游戏。
"""

SKILL_TEXTS = (*_ENGLISH_SKILLS.strip().splitlines(), *_CHINESE_SKILLS.strip().splitlines())
"""English ones first, then as many Chinese ones."""
IS_CHINESE_TEXT = tuple(text in _CHINESE_SKILLS for text in SKILL_TEXTS)

_SMALL_TALK_LINES = """
hi
hello, nice to meet you
good afternoon
how is it going?
thanks, you have been very helpful
great, thank you
all right, understood
yes, exactly
no thanks
goodbye
who made you?
what are you able to do?
do you have feelings?
how are you called?
say something funny
what is the capital of Spain?
how long is the river Nile
who discovered gravity
in which year did the wall in Berlin fall?
how many continents are there
at what temperature does ice melt
what does this word mean?
is a whale a fish?
why is grass green?
how big is the sun
what is five minus three
how much is twelve divided by four?
which animal is the fastest?
who composed the ninth symphony
where do kangaroos live?
I am hungry
my day was fine
I understand now
explain that again in other words
what was your previous answer?
do you prefer tea or coffee
you are wrong about that
sorry, I made a mistake
one moment please
is that really true?
what is the plural of mouse?
who was the first president
how many hours are in a week
why do people sleep
what is love?
carry on
that was a good one
which country is the largest
嗨
你好，很高兴认识你
下午好
一切都好吗
谢谢，你帮了大忙
太好了，多谢
行，知道了
对，就是这样
不需要，谢谢
拜拜
是谁创造了你
你有哪些本事
你有感情吗
怎么称呼你
说点好玩的
西班牙的首都是哪个城市？
长江有多长
谁发现了万有引力
柏林墙是哪年倒塌的？
世界上有几个大洲
冰在多少度融化
这个词什么意思
鲸鱼是鱼吗？
草为什么是绿的
太阳有多大
五减三等于几
十二除以四是多少？
跑得最快的动物是什么
第九交响曲是谁写的
袋鼠生活在哪里？
我饿了
我今天还行
现在我懂了
换个说法再解释一遍
你上一个回答是什么？
你喜欢喝茶还是咖啡
你说错了
抱歉，我弄错了
稍等片刻
这是真的吗？
这个成语怎么写
第一任总统是谁
一周有多少小时
人为什么要睡觉
爱是什么？
往下说
这个不错
面积最大的国家是哪个
"""

SMALL_TALK_TEXTS = tuple(_SMALL_TALK_LINES.strip().splitlines())
