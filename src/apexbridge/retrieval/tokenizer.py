"""Traditional characters and the simplified ones they are folded to.

The common characters (level one of Big5) that differ, each standing for one simplified character.
"""

import re
import threading
import unicodedata
import zlib
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import chain
from operator import add
from typing import NamedTuple, Protocol

import numpy as np
import Stemmer
from numpy.typing import NDArray

from apexbridge.retrieval.base import TextKind

_TRADITIONAL = (
    "丟並乾亂亙亞佇佈佔併來侖侶侷係俠俱倀倆倉個們倖倣倫偉側偵偽傑傖傘備傢傭傯傳債傷傾僅僇僑僕僥僱"
    "價儀儂億儈儉儐儔儕儘償優儲儷儸儻儼兇兌兒兗內兩冊冪凍凜凱別刪則剋剎剛剝剴創剷劃劇劉劊劍劑勁動"
    "勗務勛勝勞勢勳勵勸勻匯匱區協卹卻厭厲參叢吒吳吶呂員唸問啞啟喚喪喫喬單喲嗆嗇嗎嗚嗶嘆嘍嘔嘖嘗嘩"
    "嘮嘯嘰噓噥噯噴噸噹嚀嚇嚐嚕嚥嚨嚮嚴嚶囀囁囂囈囉囑囪國圍園圓圖團執堅堊堝堯報場塊塋塒塗塚塢塵塹"
    "墊墜墮墳墾壇壎壓壘壙壞壟壢壩壯壺壽夠夢夥夾奐奧奩奪奮妝姊姍姦姪娛婁婦媧媼媽嫗嫵嫻嬈嬋嬌嬝嬤嬪"
    "嬰嬸孃孫學孿宮寢實寧審寫寬寵寶將專尋對導尷屆屍屜屢層屨屬岡峴島峽崑崗崙崢嵐嶄嶇嶔嶸嶺嶼巒巔巖"
    "帥師帳帶幀幃幗幟幣幫幹幾庫廁廂廄廈廚廝廟廠廢廣廬廳弒弔張強彆彈彌彎彙彥彿後徑從徠復徬徵徹恆恥"
    "悅悵悶悽惡惱惻愛愜愴愷愾慄慇態慍慘慚慟慣慫慮慶慼慾憂憊憐憑憚憤憫憮憲憶懇應懍懣懲懶懷懸懺懼懾"
    "戀戰戲戶拋挾捨捫捲掃掄掙掛採揀揚換揮搆損搖搗搶搾摑摟摯摺摻撈撐撓撚撢撥撫撲撳撻撾撿擁擄擇擊擋"
    "擔據擠擬擰擱擲擴擷擺擻擾攆攏攔攙攜攝攣攤攪攬敗敘敵數斂斃斕斬斷於昇時晉晝暈暉暘暢暫暱曄曆曇曉"
    "曖曠曬書會朧東柵桿梔條梟棄棗棟棧棲楊楓楨業極榮構槍槓槨槳樁樂樅樑樓標樞樣樸樹樺橈橋機橢橫檔檜"
    "檢檣檮檯檳檸檻櫃櫓櫚櫛櫝櫥櫬櫺櫻欄權欖欽歎歐歟歡歲歷歸歿殘殤殮殯殲殺殼毀毆毬氈氣氫氬氳氾汎汙"
    "決沍沒沖況洩洶浹涇涼淒淚淨淪淵淺渙減渦測渾湊湧湯準溝溫溼滄滅滌滬滯滲滷滾滿漁漢漣漬漲漸漿潑潔"
    "潛潤潯潰澀澆澗澠澤澦澱濁濃濕濘濟濤濫濬濰濱濺濾瀆瀉瀋瀏瀕瀘瀝瀟瀨瀰瀲瀾灑灘灣灤災為烏無煉煙煥"
    "煩煬熒熱熾燄燈燉燐燒燙燜營燦燬燭燴燻燼燾爍爐爛爭爺爾牆牘牽犖犢犧狀狹狽猙猶獄獅獎獨獰獲獵獷獸"
    "獺獻玀現琺琿瑣瑤瑩瑪瑯璣璦環璽瓊瓏瓔瓚甌甕產畝畢畫異當疇疊痙痠瘋瘍瘓瘡瘧瘺療癆癒癘癟癡癢癥癩"
    "癬癮癱癲發皚皰皺盃盜盞盡監盤盧盪眾睏睜睞睪瞇瞞瞭瞼矓矚矯砲硯碩確碼磚磧磯礎礙礦礪礫礬祕祿禍禎"
    "禦禪禮禱禿秈稅稈稜稟種稱穀穌積穎穠穡穢穩穫窩窪窮窯窺竄竅竇竊競筆筍筧箇箋箏箝節範築篤篩簍簞簡"
    "簣簫簷簽簾籃籌籐籟籠籤籬籮籲粵糝糞糧糰糾紀紂約紅紆紇紉紋納紐純紕紗紙級紛紜紡紮細紱紲紳紹紼絀"
    "終絃組絆結絕絛絞絡絢給絨絰統絲絳絹綁綏綑經綜綞綠綢綬維綰綱網綴綵綸綺綻綽綾綿緇緊緒緘緙線緝緞"
    "締緣編緩緬緯緲練緹緻縈縉縊縐縑縛縝縞縣縫縮縱縲縴縵縷縹總績繃繅繆繒織繕繚繞繡繩繪繫繭繳繹繼繽"
    "續纏纓纔纖纜缽罈罌罰罵罷羅羈羋羨義羶習翹聖聞聯聰聲聳聶職聽聾肅脅脈脣脫脹腎腦腫腳腸膚膠膩膽膾"
    "膿臉臍臏臘臚臟臢臥臨臺與興舉舊艙艦艱艷芻苧茲荊莊莖莢莧華菸萇萊萬萵葉著葦葷蒐蒞蒼蓀蓆蓋蓮蔔蔣"
    "蔥蔭蕩蕪蕭薊薑薔薦薩薺藉藍藝藥藪藷藹藺蘆蘇蘊蘋蘚蘭蘿處虛虜號虧蛻蜆蝕蝦蝨蝸螞螢螻蟈蟬蟯蟲蟻蠅"
    "蠍蠔蠟蠣蠱蠶蠻術衛衝袞裊補裝裡製複褲褸褻襖襠襤襪襬襯襲見規覓視覦親覬覲覺覽觀觴觸訂訃計訊訌討"
    "訐訓訕訖託記訛訝訟訢訣訥訪設許訴訶診註証詁詆詐詔評詖詛詞詠詢詣試詩詫詬詭詮詰話該詳詼誅誇誌認"
    "誑誕誘誚語誠誡誣誤誥誦誨說誰課誶誹誼調諂諄談諉請諍諒論諛諜諦諧諫諭諮諱諳諶諷諸諺諼諾謀謁謂謄"
    "謊謎謐謗謙講謝謠謨謫謬謹譁證譎譏識譙譚譜譟譫譯議譴護譽讀變讒讓讖讚讜豈豎豐豔豬貍貓貝貞負財貢"
    "貧貨販貪貫責貯貲貳貴貶買貸費貼貽貿賀賁賂賃賄賅資賈賊賑賒賓賜賞賠賡賢賣賤賦質賬賭賴賸賺賻購賽"
    "贅贈贊贍贏贓贖贗贛趕趙趨跡跤跼踐踡踴蹕蹟蹣蹤蹺躂躉躊躋躍躑躓躡躪軀車軋軌軍軒軔軛軟軸軻軼軾較"
    "載輊輒輓輔輕輛輜輝輞輟輥輦輩輪輯輳輸輻輾輿轂轄轅轉轍轎轔轟轡辦辭辮辯農迴逕這連週進遊運過達違"
    "遙遜遞遠適遲遷選遺遼邁還邇邊邏邐郵鄉鄒鄧鄭鄰鄴酈醃醜醞醫醬醱釀釁釅釋釐釗釘釙針釣釦釧釩釵鈉鈍"
    "鈐鈑鈔鈕鈞鈣鈴鈷鈸鈹鈽鈾鈿鉀鉅鉉鉋鉍鉑鉗鉚鉛鉤鉸鉻銀銅銑銓銖銘銜銨銬銲銳銷銻銼鋁鋅鋇鋒鋤鋪鋰"
    "鋸鋼錄錐錕錘錙錚錠錡錢錦錨錫錮錯錳錶鍊鍋鍍鍔鍚鍛鍥鍬鍰鍵鍾鎂鎊鎔鎖鎗鎘鎚鎢鎬鎮鎰鎳鏃鏈鏍鏑鏗"
    "鏘鏜鏝鏟鏡鏢鏤鏨鏽鐃鐘鐫鐮鐲鐳鐵鐸鐺鑄鑑鑒鑠鑣鑰鑲鑷鑼鑽鑾鑿長門閂閃閉開閎閏閑閒間閔閘閡閣閥"
    "閨閩閭閱閻闆闈闊闋闌闐闔闕闖關闡闢阪陘陝陞陣陰陳陸陽隄隊階隕際隨險隱隴隸隻雋雖雙雛雜雞離難雲"
    "電霑霧霽靂靄靈靜靦靨鞏韁韃韉韋韌韓韜韻響頁頂頃項順須頊頌預頑頒頓頗領頜頡頤頭頰頷頸頹頻顆題額"
    "顎顏顓願顛類顥顧顫顯顰顱風颯颱颳颶颺颼飄飛飢飩飪飭飯飲飴飼飽飾餃餅餉養餌餒餓餘餚餛餞餡館餵餽"
    "餾餿饅饉饑饒饗饜饞馬馭馮馱馳馴駁駐駑駒駕駙駛駝駟駢駭駱駿騁騎騖騙騫騰騷騾驀驃驅驍驕驗驚驛驟驢"
    "驥驪骯髏髒體髖髮鬆鬍鬚鬢鬥鬧鬨鬱魎魘魚魯魷鮑鮪鮫鮭鮮鯀鯉鯊鯖鯛鯧鯨鯽鰍鰓鰥鰭鰱鰻鰾鱉鱔鱖鱗鱟"
    "鱷鱸鳥鳩鳳鳴鳶鴆鴉鴒鴕鴛鴣鴦鴨鴻鴿鵑鵝鵠鵡鵪鵬鵲鶉鶯鶴鷂鷓鷗鷥鷹鷺鸚鸛鸞鹵鹹鹼鹽麗麥麩麵麼黃"
    "黌點黨黴黷鼇鼕鼴齊齋齒齜齟齡齣齦齧齪齬齲齷龍龐龔龜"
)
_SIMPLIFIED = (
    "丢并干乱亘亚伫布占并来仑侣局系侠具伥俩仓个们幸仿伦伟侧侦伪杰伧伞备家佣偬传债伤倾仅戮侨仆侥雇"
    "价仪侬亿侩俭傧俦侪尽偿优储俪㑩傥俨凶兑儿兖内两册幂冻凛凯别删则克刹刚剥剀创铲划剧刘刽剑剂劲动"
    "勖务勋胜劳势勋励劝匀汇匮区协恤却厌厉参丛咤吴呐吕员念问哑启唤丧吃乔单哟呛啬吗呜哔叹喽呕啧尝哗"
    "唠啸叽嘘哝嗳喷吨当咛吓尝噜咽咙向严嘤啭嗫嚣呓啰嘱囱国围园圆图团执坚垩埚尧报场块茔埘涂冢坞尘堑"
    "垫坠堕坟垦坛埙压垒圹坏垄坜坝壮壶寿够梦伙夹奂奥奁夺奋妆姐姗奸侄娱娄妇娲媪妈妪妩娴娆婵娇袅嬷嫔"
    "婴婶娘孙学孪宫寝实宁审写宽宠宝将专寻对导尴届尸屉屡层屦属冈岘岛峡昆岗仑峥岚崭岖嵚嵘岭屿峦巅岩"
    "帅师帐带帧帏帼帜币帮干几库厕厢厩厦厨厮庙厂废广庐厅弑吊张强别弹弥弯汇彦佛后径从徕复彷征彻恒耻"
    "悦怅闷凄恶恼恻爱惬怆恺忾栗殷态愠惨惭恸惯怂虑庆戚欲忧惫怜凭惮愤悯怃宪忆恳应懔懑惩懒怀悬忏惧慑"
    "恋战戏户抛挟舍扪卷扫抡挣挂采拣扬换挥构损摇捣抢榨掴搂挚折掺捞撑挠捻掸拨抚扑揿挞挝捡拥掳择击挡"
    "担据挤拟拧搁掷扩撷摆擞扰撵拢拦搀携摄挛摊搅揽败叙敌数敛毙斓斩断于升时晋昼晕晖旸畅暂昵晔历昙晓"
    "暧旷晒书会胧东栅杆栀条枭弃枣栋栈栖杨枫桢业极荣构枪杠椁桨桩乐枞梁楼标枢样朴树桦桡桥机椭横档桧"
    "检樯梼台槟柠槛柜橹榈栉椟橱榇棂樱栏权榄钦叹欧欤欢岁历归殁残殇殓殡歼杀壳毁殴球毡气氢氩氲泛泛污"
    "决冱没冲况泄汹浃泾凉凄泪净沦渊浅涣减涡测浑凑涌汤准沟温湿沧灭涤沪滞渗卤滚满渔汉涟渍涨渐浆泼洁"
    "潜润浔溃涩浇涧渑泽滪淀浊浓湿泞济涛滥浚潍滨溅滤渎泻沈浏濒泸沥潇濑弥潋澜洒滩湾滦灾为乌无炼烟焕"
    "烦炀荧热炽焰灯炖磷烧烫焖营灿毁烛烩熏烬焘烁炉烂争爷尔墙牍牵荦犊牺状狭狈狰犹狱狮奖独狞获猎犷兽"
    "獭献猡现珐珲琐瑶莹玛琅玑瑷环玺琼珑璎瓒瓯瓮产亩毕画异当畴叠痉酸疯疡痪疮疟瘘疗痨愈疠瘪痴痒症癞"
    "癣瘾瘫癫发皑疱皱杯盗盏尽监盘卢荡众困睁睐睾眯瞒了睑眬瞩矫炮砚硕确码砖碛矶础碍矿砺砾矾秘禄祸祯"
    "御禅礼祷秃籼税秆棱禀种称谷稣积颖秾穑秽稳获窝洼穷窑窥窜窍窦窃竞笔笋笕个笺筝钳节范筑笃筛篓箪简"
    "篑箫檐签帘篮筹藤籁笼签篱箩吁粤糁粪粮团纠纪纣约红纡纥纫纹纳纽纯纰纱纸级纷纭纺扎细绂绁绅绍绋绌"
    "终弦组绊结绝绦绞络绚给绒绖统丝绛绢绑绥捆经综缍绿绸绶维绾纲网缀彩纶绮绽绰绫绵缁紧绪缄缂线缉缎"
    "缔缘编缓缅纬缈练缇致萦缙缢绉缣缚缜缟县缝缩纵缧纤缦缕缥总绩绷缫缪缯织缮缭绕绣绳绘系茧缴绎继缤"
    "续缠缨才纤缆钵坛罂罚骂罢罗羁芈羡义膻习翘圣闻联聪声耸聂职听聋肃胁脉唇脱胀肾脑肿脚肠肤胶腻胆脍"
    "脓脸脐膑腊胪脏臜卧临台与兴举旧舱舰艰艳刍苎兹荆庄茎荚苋华烟苌莱万莴叶着苇荤搜莅苍荪席盖莲卜蒋"
    "葱荫荡芜萧蓟姜蔷荐萨荠借蓝艺药薮薯蔼蔺芦苏蕴苹藓兰萝处虚虏号亏蜕蚬蚀虾虱蜗蚂萤蝼蝈蝉蛲虫蚁蝇"
    "蝎蚝蜡蛎蛊蚕蛮术卫冲衮袅补装里制复裤褛亵袄裆褴袜䙓衬袭见规觅视觎亲觊觐觉览观觞触订讣计讯讧讨"
    "讦训讪讫托记讹讶讼䜣诀讷访设许诉诃诊注证诂诋诈诏评诐诅词咏询诣试诗诧诟诡诠诘话该详诙诛夸志认"
    "诳诞诱诮语诚诫诬误诰诵诲说谁课谇诽谊调谄谆谈诿请诤谅论谀谍谛谐谏谕谘讳谙谌讽诸谚谖诺谋谒谓誊"
    "谎谜谧谤谦讲谢谣谟谪谬谨哗证谲讥识谯谭谱噪谵译议谴护誉读变谗让谶赞谠岂竖丰艳猪狸猫贝贞负财贡"
    "贫货贩贪贯责贮赀贰贵贬买贷费贴贻贸贺贲赂赁贿赅资贾贼赈赊宾赐赏赔赓贤卖贱赋质账赌赖剩赚赙购赛"
    "赘赠赞赡赢赃赎赝赣赶赵趋迹交局践蜷踊跸迹蹒踪跷跶趸踌跻跃踯踬蹑躏躯车轧轨军轩轫轭软轴轲轶轼较"
    "载轾辄挽辅轻辆辎辉辋辍辊辇辈轮辑辏输辐辗舆毂辖辕转辙轿辚轰辔办辞辫辩农回迳这连周进游运过达违"
    "遥逊递远适迟迁选遗辽迈还迩边逻逦邮乡邹邓郑邻邺郦腌丑酝医酱酦酿衅酽释厘钊钉钋针钓扣钏钒钗钠钝"
    "钤钣钞钮钧钙铃钴钹铍钸铀钿钾钜铉铇铋铂钳铆铅钩铰铬银铜铣铨铢铭衔铵铐焊锐销锑锉铝锌钡锋锄铺锂"
    "锯钢录锥锟锤锱铮锭锜钱锦锚锡锢错锰表炼锅镀锷钖锻锲锹锾键钟镁镑镕锁枪镉锤钨镐镇镒镍镞链镙镝铿"
    "锵镗镘铲镜镖镂錾锈铙钟镌镰镯镭铁铎铛铸鉴鉴铄镳钥镶镊锣钻銮凿长门闩闪闭开闳闰闲闲间闵闸阂阁阀"
    "闺闽闾阅阎板闱阔阕阑阗阖阙闯关阐辟坂陉陕升阵阴陈陆阳堤队阶陨际随险隐陇隶只隽虽双雏杂鸡离难云"
    "电沾雾霁雳霭灵静腼靥巩缰鞑鞯韦韧韩韬韵响页顶顷项顺须顼颂预顽颁顿颇领颌颉颐头颊颔颈颓频颗题额"
    "颚颜颛愿颠类颢顾颤显颦颅风飒台刮飓飏飕飘飞饥饨饪饬饭饮饴饲饱饰饺饼饷养饵馁饿余肴馄饯馅馆喂馈"
    "馏馊馒馑饥饶飨餍馋马驭冯驮驰驯驳驻驽驹驾驸驶驼驷骈骇骆骏骋骑骛骗骞腾骚骡蓦骠驱骁骄验惊驿骤驴"
    "骥骊肮髅脏体髋发松胡须鬓斗闹哄郁魉魇鱼鲁鱿鲍鲔鲛鲑鲜鲧鲤鲨鲭鲷鲳鲸鲫鳅鳃鳏鳍鲢鳗鳔鳖鳝鳜鳞鲎"
    "鳄鲈鸟鸠凤鸣鸢鸩鸦鸰鸵鸳鸪鸯鸭鸿鸽鹃鹅鹄鹉鹌鹏鹊鹑莺鹤鹞鹧鸥鸶鹰鹭鹦鹳鸾卤咸碱盐丽麦麸面么黄"
    "黉点党霉黩鳌冬鼹齐斋齿龇龃龄出龈啮龊龉龋龌龙庞龚龟"
)

TRADITIONAL_TO_SIMPLIFIED = str.maketrans(_TRADITIONAL, _SIMPLIFIED)
"""For `str.translate`."""


CJK_RANGES = ((0x3400, 0x9FFF), (0xF900, 0xFAFF))
"""Where the characters lie that take three bytes; there are rare ones beyond, of four."""
_TABLE_SIZE = 0x10000
_ZEROS = bytes(3)
"""As long as the second character of a pair."""

TermHashes = NDArray[np.uint32]


class _CjkTables(NamedTuple):
    is_sign: NDArray[np.bool_]
    simple: NDArray[np.uint16]
    alone: TermHashes
    """The term of each character."""
    first: TermHashes
    """What each adds to the term of the one behind it."""


@cache
def _cjk_tables() -> _CjkTables:
    is_sign = np.zeros(_TABLE_SIZE, np.bool_)
    alone, first = np.zeros(_TABLE_SIZE, np.uint32), np.zeros(_TABLE_SIZE, np.uint32)
    nothing = zlib.crc32(_ZEROS)
    for low, high in CJK_RANGES:
        is_sign[low : high + 1] = True
        for sign in range(low, high + 1):
            alone[sign] = term = zlib.crc32(chr(sign).encode())
            first[sign] = zlib.crc32(_ZEROS, term) ^ nothing
    simple = np.arange(_TABLE_SIZE, dtype=np.uint16)
    for before, after in TRADITIONAL_TO_SIMPLIFIED.items():
        simple[before] = after
    return _CjkTables(is_sign, simple, alone, first)


def cjk_bigram_terms(text: str) -> TermHashes:
    """The terms of all Chinese characters in a text without rare ones, and of all pairs."""
    tables = _cjk_tables()
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    codes = np.where(codes < _TABLE_SIZE, codes, 0)
    places = np.flatnonzero(tables.is_sign[codes])
    signs = tables.simple[codes[places]]
    pairs = np.flatnonzero(places[1:] - places[:-1] == 1)
    alone = tables.alone[signs]
    return np.concatenate((alone, tables.first[signs[pairs]] ^ alone[pairs + 1]))


_HAN = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_RUN_PATTERN = re.compile(rf"[{_HAN}]+|[^\W_{_HAN}]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_IS_HAN = re.compile(rf"[{_HAN}]")
_IS_RARE = re.compile("[\U00020000-\U0003ffff]")
_NOT_HAN = re.compile(rf"[^\W_{_HAN}]+")
_MAX_TOKEN_CHARS = 64
_MAX_COUNT = 255
_STEM_CACHE_SIZE = 65_536

TermCounts = tuple[NDArray[np.uint32], NDArray[np.uint8]]
"""Terms in rising order, and how often each is there."""


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802  # the library's own spelling


_stemmer: _Stemmer = Stemmer.Stemmer("english")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_stemmer_lock = threading.Lock()  # it keeps the word it is at; skills are read while others search

# What every request has, whatever it is for. Left in, it would find skills that speak like people.
_STOP_WORD_LINES = """
a an the and or but if then than so as of at by for from in into on onto off out over to up down
with without about after before between during through under again once here there when where why
how what which who whom whose this that these those i me my mine we us our ours you your yours he
him his she her hers it its they them their is am are was were be been being do does did doing done
have has had having can could will would shall should may might must not no nor only own same too
very just also any all each every both few more most some such other another one ones get got gets
getting want wants wanted need needs needed like let lets make makes please help give gives put
know tell show see something anything everything thing things way ways really still now because
while until since ve ll re don doesn didn isn aren wasn weren won wouldn couldn shouldn hasn haven
hadn
帮我 我们 我的 我要 我想 一个 一下 怎么 什么 这个 那个 可以 能不 不能 需要 给我 请帮 一些 有没 没有
是不 哪些 如何 他们 你们 自己 现在 已经 然后 但是 因为 所以 如果 就是 还是 或者 以及 这些 那些 一份
一张 一段 几个 每个 所有 想要
"""
_STOP_WORDS = frozenset(_STOP_WORD_LINES.split())


def is_chinese(text: str) -> bool:
    """Say whether a text is written in Chinese: as many of its characters as words of others."""
    han = 0 if text.isascii() else len(_IS_HAN.findall(text))
    return han > 0 and han >= sum(1 for run in _RUN_PATTERN.findall(text) if not _IS_HAN.match(run))


def tokenize(text: str, *, kind: TextKind) -> list[str]:
    """The words of a text in order, as they are compared."""
    runs = _runs(text)
    if kind == "document":
        return [
            word
            for run in runs
            for word in (
                _cached_stems(run)
                if run.isascii() and len(run) <= _MAX_TOKEN_CHARS
                else _tokenize_run(run)
            )
        ]
    found = [word for run in runs for word in _tokenize_query_run(run)]
    telling = [word for word in found if word not in _STOP_WORDS]
    return [_stem(word) for word in telling or found]


def _runs(text: str) -> list[str]:
    return _RUN_PATTERN.findall(_normalize(text))


def _normalize(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


@lru_cache(maxsize=_STEM_CACHE_SIZE)
def _cached_stems(run: str) -> tuple[str, ...]:
    """Kept for short runs only: a long one, or one of Chinese, is seldom met again."""
    return _tokenize_run(run)


def _tokenize_run(run: str) -> tuple[str, ...]:
    if not _IS_HAN.match(run):
        return tuple(_stem(word) for word in _split_camel_case(run))
    simple = run.translate(TRADITIONAL_TO_SIMPLIFIED)
    return (*simple, *_bigrams(simple))


def _tokenize_query_run(run: str) -> tuple[str, ...]:
    if not _IS_HAN.match(run):
        return tuple(_split_camel_case(run))
    simple = run.translate(TRADITIONAL_TO_SIMPLIFIED)
    return tuple(_bigrams(simple)) if len(simple) > 1 else (simple,)


def _split_camel_case(run: str) -> list[str]:
    """`readPDFFile` is three words."""
    return [part.casefold()[:_MAX_TOKEN_CHARS] for part in _CAMEL.split(run)]


def _bigrams(run: str) -> list[str]:
    return list(map(add, run, run[1:]))


@lru_cache(maxsize=_STEM_CACHE_SIZE)
def _stem(word: str) -> str:
    if not word.isascii():
        return word
    with _stemmer_lock:
        return _stemmer.stemWord(word)


@lru_cache(maxsize=131_072)
def term_hash(word: str) -> int:
    """A word as a number that is the same in every process, so that no vocabulary is kept."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


def count_terms(found: Iterable[str]) -> TermCounts:
    """The terms in rising order, and how often each is there (at most 255 times)."""
    return _count_hashes(np.fromiter(map(term_hash, found), np.uint32))


def count_text_terms(text: str, *, title: str = "", weight: int = 1) -> TermCounts:
    """The same for the words of a document; its title's count `weight` times."""
    read = _normalize("\n".join((title,) * weight + (text,)))
    if read.isascii() or not _IS_HAN.search(read) or _IS_RARE.search(read):
        return _count_hashes(_hash_runs(_RUN_PATTERN.findall(read)))
    return _count_hashes(
        np.concatenate((_hash_runs(_NOT_HAN.findall(read)), cjk_bigram_terms(read)))
    )


def _hash_runs(runs: Iterable[str]) -> NDArray[np.uint32]:
    return np.fromiter(chain.from_iterable(map(_run_terms.__getitem__, runs)), np.uint32)


class _RunTermCache(dict[str, tuple[int, ...]]):
    """The terms of a run of letters; what was cut before is found without a call.

    Kept for short runs only: a long one is seldom met again.
    """

    def __missing__(self, run: str) -> tuple[int, ...]:
        numbers = tuple(map(term_hash, _tokenize_run(run)))
        if len(run) <= _MAX_TOKEN_CHARS:
            if len(self) >= _STEM_CACHE_SIZE:
                self.clear()
            self[run] = numbers
        return numbers


_run_terms = _RunTermCache()


def _count_hashes(numbers: NDArray[np.uint32]) -> TermCounts:
    # Two words may be one number; what is there twice would count as two texts that have it.
    terms, counts = np.unique(numbers, return_counts=True)
    return terms, np.minimum(counts, _MAX_COUNT).astype(np.uint8)
